import assert from 'node:assert/strict'
import { execFileSync, spawnSync } from 'node:child_process'
import { cpSync, existsSync, mkdirSync, readFileSync, readdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { basename, dirname, join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { createContext, runInContext } from 'node:vm'
import { gzipSync } from 'node:zlib'
import * as keymill from 'keymill'
import { blackHole, fresh, run, scratch } from './support.mjs'

const require = createRequire(import.meta.url)
const home = dirname(require.resolve('keymill/package.json'))
const { native } = require(join(home, 'dist', 'native.js'))
const manifest = JSON.parse(readFileSync(join(home, 'package.json'), 'utf8'))

test('the package, the core and the module say one version', () => {
  assert.equal(manifest.version, native.version())
  assert.equal(keymill.version, native.version())
})

test('the package claims the machines of its native libraries', () => {
  const os = { linux: 'linux', macos: 'darwin', windows: 'win32' }
  const cpu = { x86_64: 'x64', aarch64: 'arm64' }
  const held = readdirSync(join(home, 'native')).map((file) => file.match(/^keymill\.(linux|macos|windows)-(x86_64|aarch64)(?:-musl)?\.node$/))
  assert.ok(held.length > 0)
  for (const [file, system, machine] of held) assert.ok(manifest.os.includes(os[system]) && manifest.cpu.includes(cpu[machine]), file)
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
    const internal = new Set(['attempt', 'refusalOfKeys', 'claimed', 'begun', 'waitFor', 'fillAll', 'listed', 'made'])
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

test('each native library is smaller than 6 MiB, packed as it is downloaded', { skip: process.env.KEYMILL_PROFILE === 'dev' && 'it is not compiled as users get it' }, () => {
  for (const file of readdirSync(join(home, 'native'))) {
    const bytes = gzipSync(readFileSync(join(home, 'native', file))).length
    assert.ok(bytes < 6 * 2 ** 20, `${file}: ${bytes} bytes`)
  }
})

test('the libc is the one of the interpreter of this process', () => {
  const { endings, interpreter } = require(join(home, 'dist', 'library.js'))
  assert.deepEqual(endings('/lib64/ld-linux-x86-64.so.2'), [''])
  assert.deepEqual(endings('/nix/store/a-musl-b/lib/ld-linux-aarch64.so.1'), [''])
  assert.deepEqual(endings('/lib/ld-musl-aarch64.so.1'), ['-musl'])
  assert.deepEqual(endings(undefined), ['', '-musl'])
  const glibc = process.report.getReport().header.glibcVersionRuntime
  assert.deepEqual(endings(interpreter()), [glibc ? '' : '-musl'])
})

const own = basename(Object.keys(require.cache).find((file) => file.endsWith('.node')))

/** A copy of the package, and what `import 'keymill'` says there. `change` gets the folder of its native libraries. */
function copied(change) {
  const folder = scratch()
  const there = join(folder, 'node_modules', 'keymill')
  mkdirSync(there, { recursive: true })
  for (const name of ['package.json', 'index.mjs', 'unbundled.mjs', 'dist', 'native']) cpSync(join(home, name), join(there, name), { recursive: true })
  change?.(join(there, 'native'))
  const { status, stderr } = spawnSync(process.execPath, ['--input-type=module', '--eval', "import 'keymill'"], { cwd: folder, encoding: 'utf8' })
  return { folder, status, stderr }
}

/** Replaces this process's library in the folder. */
const replaced = (change) => (folder) => {
  const file = join(folder, own)
  const bytes = readFileSync(file)
  writeFileSync(file, change(bytes) ?? bytes)
}

test('a library of another architecture is refused in words', () => {
  const machine = { x64: 'aarch64', arm64: 'x86_64' }[process.arch]
  const { stderr } = copied((folder) => {
    for (const file of readdirSync(folder)) renameSync(join(folder, file), join(folder, `keymill.linux-${machine}.node`))
  })
  assert.match(stderr, /keymill has no native library for this process \(linux-\w+, libc of \/\S+\)\. Looked for:\n {2}\S+\/keymill\.linux-\w+(-musl)?\.node: no such file\n/)
  assert.match(stderr, new RegExp(`This package holds keymill\\.linux-${machine}\\.node\\. keymill runs on Linux: .*\nInstall the package again`))
  // Under the name of this machine, too.
  const { stderr: renamed } = copied(replaced((bytes) => void bytes.writeUInt16LE(process.arch === 'x64' ? 183 : 62, 18)))
  assert.match(renamed, /: it is a library for another architecture\n/)
})

const permission = ['--permission', '--experimental-permission'].find((flag) => process.allowedNodeEnvironmentFlags.has(flag))

test('a library that Node was told not to load is refused with the flags that allow it', { skip: permission === undefined && 'this Node has no permissions' }, () => {
  for (const flags of [['--no-addons'], [permission, '--allow-fs-read=*'], [permission, '--allow-addons', `--allow-fs-read=${join(home, 'dist')}`, `--allow-fs-read=${join(home, 'package.json')}`]]) {
    const { status, stderr } = spawnSync(process.execPath, [...flags, '-e', `require(${JSON.stringify(home)})`], { encoding: 'utf8' })
    assert.equal(status, 1, stderr)
    assert.match(stderr, /without --no-addons; where it runs with --permission, add --allow-addons and --allow-fs-read=\S+/)
    assert.doesNotMatch(stderr, /bundler/)
  }
  const allowed = [permission, '--allow-fs-read=*', '--allow-addons', '-e', `console.log(require(${JSON.stringify(home)}).version)`]
  assert.match(execFileSync(process.execPath, allowed, { encoding: 'utf8', stdio: 'pipe' }), /^\d/)
})

test('a truncated library is refused in words', () => {
  const whole = readFileSync(join(home, 'native', own)).length
  for (const length of [0, 3, 63, 64, 4096, whole >> 1, whole - 1]) {
    const { status, stderr } = copied(replaced((bytes) => bytes.subarray(0, length)))
    assert.equal(status, 1, `${length} bytes: ${stderr}`)
    assert.match(stderr, length < 64 ? /: it is no library for 64-bit Linux\n/ : new RegExp(`: it is truncated: ${length} bytes instead of ${whole}\n`))
  }
})

test('bytes that are no library are refused in words, whatever they are', () => {
  const texts = [Buffer.from('no library'.repeat(1000)), Buffer.alloc(100_000, 0xff), Buffer.concat([Buffer.from('\x7fELF\x02\x01\x01'), Buffer.alloc(5000, 0xff)])]
  for (const text of texts) {
    const { status, stderr } = copied(replaced(() => text))
    assert.equal(status, 1, stderr)
    assert.match(stderr, /Looked for:\n {2}\S+: it is (no library for 64-bit Linux|truncated: .*)\n/)
  }
})

test('a libc that is missing is named', { skip: !process.report.getReport().header.glibcVersionRuntime && 'this libc is not glibc' }, () => {
  const { stderr } = copied(replaced((bytes) => Buffer.from(bytes.toString('latin1').replaceAll('libc.so.6\0', 'libc.none\0'), 'latin1')))
  assert.match(stderr, /\.node: libc\.none: cannot open shared object file.*\nThis package holds .*\. keymill runs on Linux: .* glibc 2\.17 or later/)
})

test('code without its libraries, as a bundle has it, says how to write the bundle', () => {
  const { stderr } = copied((folder) => rmSync(folder, { recursive: true }))
  for (const words of ["serverExternalPackages: ['keymill']", '--external:keymill', "externals: { keymill: 'commonjs keymill' }"]) assert.ok(stderr.includes(words), stderr)
})

test('two versions of the package in one process both serve, but not on one SQLite file', async () => {
  const { folder, status, stderr } = copied()
  assert.equal(status, 0, stderr)
  const manifest = join(folder, 'node_modules', 'keymill', 'package.json')
  writeFileSync(manifest, readFileSync(manifest, 'utf8').replace(/"version": ".*"/, '"version": "0.0.1"'))
  const other = await import(pathToFileURL(join(folder, 'node_modules', 'keymill', 'index.mjs')))
  assert.notEqual(other.Mill, keymill.Mill)
  const mills = [keymill, other].map(({ open }, version) => open(`sqlite:${join(folder, `${version}.db`)}`))
  for (const mill of mills) assert.deepEqual(mill.segment('orders').take(2), [1n, 2n])
  const same = other.open(`sqlite:${join(folder, '0.db')}`)
  assert.throws(() => same.segment('orders').next(), { code: 'STORE_UNSAFE', message: /open in this process outside keymill too/ })
  for (const mill of mills) assert.equal(mill.segment('orders').next(), 3n)
  for (const mill of [...mills, same]) mill.close()
})

test('where the runtime refuses views of foreign memory ids come one by one, in order', async () => {
  const { code, out, err } = await run('refused.mjs', [join(home, 'dist'), fresh()]).done
  assert.equal(code, 0, out + err)
})

/** The package as Jest and Vitest load it: its modules run in a realm of their own, and Node's and the native part do not. */
function inAnotherRealm() {
  const realm = createContext({ Buffer, performance, process, setTimeout, clearTimeout, setInterval, clearInterval, setImmediate, queueMicrotask })
  const loaded = new Map()
  const load = (file) => {
    if (!loaded.has(file)) {
      const module = { exports: {} }
      loaded.set(file, module)
      const near = createRequire(file)
      const find = (name) => (near.resolve(name).startsWith(join(home, 'dist')) ? load(near.resolve(name)) : near(name))
      const body = runInContext(`(function (exports, require, module, __filename, __dirname) {${readFileSync(file, 'utf8')}\n})`, realm, { filename: file })
      body(module.exports, find, module, file, dirname(file))
    }
    return loaded.get(file).exports
  }
  return { keymill: load(join(home, 'dist', 'index.js')), evaluate: (text) => runInContext(text, realm) }
}

test('in another realm an error is a KeymillError with its code, and bytes are bytes', async (t) => {
  const { keymill, evaluate } = inAnotherRealm()
  const mill = keymill.open('memory:')
  const isOurs = (code) => (e) => e instanceof keymill.KeymillError && e.code === code && e.name === 'KeymillError'
  assert.throws(() => mill.source('segment:orders?stepp=1'), isOurs('INVALID_CONFIG'))
  const hole = await blackHole()
  t.after(hole.end)
  const away = keymill.open(`mysql://app:horse@127.0.0.1:${hole.port}/ids?tls=off&connect_timeout=50ms`)
  const later = away.segment('later', { deadline: '60ms' })
  await assert.rejects(later.nextAsync(), (e) => e instanceof keymill.KeymillError && /^(STORE_UNAVAILABLE|DEADLINE)$/.test(e.code))
  away.close()
  assert.throws(() => mill.snowflake('tx', { worker: 1 }).parse(-1n), isOurs('INVALID_ARGUMENT'))
  const orders = mill.business('orders')
  const parts = orders.parse(orders.next('buyer'))
  const bytes = Buffer.alloc(8)
  bytes.writeBigUInt64BE(orders.next('buyer'))
  for (const given of [bytes, new Uint8Array(bytes), evaluate('(bytes) => Uint8Array.from(bytes)')(bytes)]) {
    assert.equal(orders.parse(given).gene, parts.gene)
  }
  const segment = mill.segment('filled')
  for (const array of [new BigUint64Array(2), evaluate('new BigUint64Array(2)'), new BigUint64Array(new SharedArrayBuffer(16))]) segment.fill(array)
  assert.equal(segment.next(), 7n)
  mill.close()
})
