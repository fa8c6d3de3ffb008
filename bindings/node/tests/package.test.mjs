import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { cpSync, existsSync, mkdirSync, readFileSync, readdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { gzipSync } from 'node:zlib'
import * as keymill from 'keymill'
import { fresh, run, scratch } from './support.mjs'

const require = createRequire(import.meta.url)
const home = dirname(require.resolve('keymill/package.json'))
const { native } = require(join(home, 'dist', 'native.js'))
const manifest = JSON.parse(readFileSync(join(home, 'package.json'), 'utf8'))

test('the package, the core and the module say one version', () => {
  assert.equal(manifest.version, native.version())
  assert.equal(keymill.version, native.version())
})

test('the package claims the machines it holds a native part for, and no others', () => {
  const held = readdirSync(join(home, 'native')).map((file) => file.match(/^keymill\.(\w+)-(\w+)(?:-gnu)?\.node$/))
  assert.deepEqual([...new Set(held.map(([, os]) => os))], manifest.os)
  assert.deepEqual([...new Set(held.map(([, , cpu]) => cpu))], manifest.cpu)
})

test('the package runs no scripts on install and needs no other package', () => {
  assert.equal(manifest.dependencies, undefined)
  for (const name of Object.keys(manifest.scripts ?? {})) assert.doesNotMatch(name, /install|prepare/)
})

test('the types name the same codes as the core', () => {
  const types = readFileSync(join(home, 'dist', 'codes.d.ts'), 'utf8')
  assert.deepEqual([...types.matchAll(/'([A-Z_]+)'/g)].map(([, code]) => code), native.codes())
})

test('the native part is what its declaration says', () => {
  const types = readFileSync(join(home, 'dist', 'native.d.ts'), 'utf8')
  const declared = [...types.match(/interface Native \{([^}]*)\}/)[1].matchAll(/^\s+(\w+)\(/gm)].map(([, name]) => name)
  assert.deepEqual([...new Set(declared)].sort(), Object.keys(native).sort())
})

test('the public types are what the module holds', () => {
  const types = readFileSync(join(home, 'dist', 'index.d.ts'), 'utf8')
  const named = [...types.matchAll(/^export \{([^}]*)\}|^export declare const (\w+)/gm)]
    .flatMap(([, list, one]) => (one ? [one] : list.split(',')))
    .map((name) => name.trim())
    .filter((name) => name !== '' && !name.startsWith('type '))
  assert.deepEqual(named.sort(), Object.keys(keymill).sort())
  // Every method that the classes have is declared, and the other way round.
  for (const [file, kinds] of Object.entries({ 'mill.d.ts': ['Mill'], 'source.d.ts': ['Source', 'NumberSource', 'Serial'] })) {
    const text = readFileSync(join(home, 'dist', file), 'utf8')
    const declared = new Set([...text.matchAll(/^ {4}(?:abstract |get )?(\w+)[<(]/gm)].map(([, name]) => name))
    const internal = new Set(['attempt', 'claimed', 'begun', 'waitFor', 'fillAll', 'listed', 'made'])
    const held = new Set()
    for (const kind of kinds) {
      for (let type = keymill[kind].prototype; type !== Object.prototype; type = Object.getPrototypeOf(type)) {
        for (const name of Object.getOwnPropertyNames(type)) if (!internal.has(name) && name !== 'constructor') held.add(name)
      }
    }
    declared.delete('constructor')
    assert.deepEqual([...declared].sort(), [...held].sort(), file)
  }
})

test('a strict TypeScript program of every verb compiles, and a wrong one does not', { skip: tsc() === undefined && 'no tsc here' }, () => {
  const folder = scratch()
  mkdirSync(join(folder, 'node_modules'))
  symlinkSync(home, join(folder, 'node_modules', 'keymill'))
  for (const name of ['uses.mts', 'uses.cts', 'wrong.mts']) cpSync(fileURLToPath(new URL(`types/${name}`, import.meta.url)), join(folder, name))
  const check = (file) =>
    execFileSync(process.execPath, [tsc(), '--strict', '--noEmit', '--target', 'es2022', '--module', 'node16', '--moduleResolution', 'node16', '--preserveSymlinks', '--types', '', join(folder, file)], { encoding: 'utf8', cwd: folder, stdio: 'pipe' })
  check('uses.mts')
  check('uses.cts')
  assert.throws(() => check('wrong.mts'), (e) => {
    const marked = readFileSync(join(folder, 'wrong.mts'), 'utf8').split('\n').flatMap((line, at) => (line.includes('// wrong') ? [at + 1] : []))
    const found = [...new Set([...e.stdout.matchAll(/wrong\.mts\((\d+),/g)].map(([, line]) => Number(line)))]
    assert.deepEqual(found, marked, e.stdout)
    return true
  })
})

function tsc() {
  const file = process.env.KEYMILL_TSC ?? join(home, 'node_modules', 'typescript', 'bin', 'tsc')
  return existsSync(file) ? file : undefined
}

test('the package is smaller than 6 MiB, packed as it is downloaded', () => {
  const packed = (file) => gzipSync(readFileSync(file)).length
  const size = (folder) => readdirSync(folder, { withFileTypes: true }).reduce((sum, it) => sum + (it.isDirectory() ? size : packed)(join(folder, it.name)), 0)
  const bytes = ['dist', 'native'].reduce((sum, folder) => sum + size(join(home, folder)), 0)
  assert.ok(bytes < 6 * 2 ** 20, `${bytes} bytes`)
})

test('a wrong platform is told plainly', async () => {
  const folder = scratch()
  const there = join(folder, 'node_modules', 'keymill')
  mkdirSync(there, { recursive: true })
  for (const name of ['package.json', 'index.mjs', 'dist']) cpSync(join(home, name), join(there, name), { recursive: true })
  mkdirSync(join(there, 'native'))
  writeFileSync(join(there, 'native', 'keymill.plan9-mips.node'), '')
  writeFileSync(join(folder, 'a.mjs'), "import 'keymill'\n")
  const load = () => execFileSync(process.execPath, [join(folder, 'a.mjs')], { encoding: 'utf8', stdio: 'pipe' })
  assert.throws(load, /keymill has no native part for \w+-\w+.*: this package holds keymill\.plan9-mips\.node/)
  // A file that is there but is none.
  renameSync(join(there, 'native', 'keymill.plan9-mips.node'), join(there, 'native', readdirSync(join(home, 'native'))[0]))
  assert.throws(load, /native part for .* does not load here/)
  rmSync(there, { recursive: true })
})

test('where the runtime refuses views of foreign memory ids come one by one, in order', async () => {
  const { code, out, err } = await run('refused.mjs', [join(home, 'dist'), fresh()]).done
  assert.equal(code, 0, out + err)
})
