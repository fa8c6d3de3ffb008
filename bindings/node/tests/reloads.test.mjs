// Programs that load keymill again and again: the module registry of Jest, and nodemon. KEYMILL_RELOADERS is a folder that has both
// (ci/npm/reloads). KEYMILL_ALL runs more of them.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { mkdirSync, readFileSync, readdirSync, readlinkSync, realpathSync, symlinkSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { test } from 'node:test'
import { open } from 'keymill'
import { scratch, until } from './support.mjs'

const reloaders = process.env.KEYMILL_RELOADERS
const skip = (reloaders === undefined && 'KEYMILL_RELOADERS names no folder') || (Number.parseInt(process.versions.node) < 22 && 'node:sqlite needs Node 22')
const all = process.env.KEYMILL_ALL !== undefined && process.env.KEYMILL_ALL !== ''
const home = dirname(createRequire(import.meta.url).resolve('keymill/package.json'))

/** A project with the package in it. */
function project(files) {
  const folder = scratch()
  mkdirSync(join(folder, 'node_modules'))
  symlinkSync(realpathSync(home), join(folder, 'node_modules', 'keymill'))
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text)
  return folder
}

/** Runs a program of KEYMILL_RELOADERS; `onText` gets what it has printed so far. */
function started(program, args, cwd, env, onText) {
  // Node's own runner must not take the output for a test of its own.
  const child = spawn(process.execPath, [join(reloaders, 'node_modules', program), ...args], { cwd, env: { ...process.env, NODE_TEST_CONTEXT: undefined, ...env } })
  let text = ''
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (more) => {
      text += more
      onText?.(text, child)
    })
  }
  const done = new Promise((end) => child.on('close', (code) => end({ code, text })))
  return { child, done }
}

const once = (ids) => {
  assert.ok(ids.length > 0)
  assert.equal(new Set(ids).size, ids.length, 'no id comes twice')
}

// Each import has classes, cursors and a mill of its own. The program closes none of them, as tests rarely do.
const reset = (reloads) => `
const { appendFileSync, readdirSync } = require('node:fs')
require('node:v8').setFlagsFromString('--expose-gc')
const gc = require('node:vm').runInNewContext('gc')
const count = (name) => readdirSync('/proc/self/' + name).length
test('every import gives ids', async () => {
  const seen = []
  const ids = []
  const mills = []
  const listeners = process.listenerCount('exit')
  for (let reload = 1; reload <= ${reloads}; reload++) {
    jest.resetModules()
    const { lazy, open } = require('keymill')
    const mill = open(process.env.KEYMILL_CONFIG)
    mills.push(new WeakRef(mill))
    ids.push(lazy('segment:orders')(), mill.segment('orders').next(), await lazy('segment:orders').nextAsync())
    if (reload === 10 || reload === ${reloads}) seen.push([count('task'), count('fd')])
  }
  for (let turn = 0; turn < 3; turn++) await new Promise((later) => setTimeout(later, 1)).then(() => gc({ type: 'major', execution: 'async' }))
  expect(process.listenerCount('exit')).toBeLessThanOrEqual(listeners + 1)
  appendFileSync('ids', ids.join('\\n') + '\\n')
  appendFileSync('seen', JSON.stringify([...seen, mills.filter((mill) => mill.deref() !== undefined).length]) + '\\n')
}, 300_000)
`
const config = { 'package.json': '{ "jest": { "testEnvironment": "node" } }' }
const lines = (folder, name) => readFileSync(join(folder, name), 'utf8').trim().split('\n')

async function jest(files, ...args) {
  const folder = project({ ...config, ...files })
  const { code, text } = await started('jest/bin/jest.js', ['--ci', ...args], folder, { KEYMILL_CONFIG: `sqlite:${join(folder, 'ids.db')}` }).done
  assert.equal(code, 0, text)
  assert.doesNotMatch(text, /did not exit|failed to exit|MaxListeners|leak/i)
  const ids = lines(folder, 'ids')
  once(ids)
  return { ids, seen: lines(folder, 'seen').map(JSON.parse) }
}

test('the module registry of Jest: 200 imports in one test file', { skip }, async (t) => {
  const { ids, seen: [[[threads, descriptors], last, mills]] } = await jest({ 'one.test.js': reset(200) }, '--runInBand')
  assert.equal(ids.length, 600)
  t.diagnostic(`jest: threads and descriptors after 10 imports ${threads} and ${descriptors}, after 200 ${last.join(' and ')}; mills in memory ${mills}`)
  assert.deepEqual(last, [threads, descriptors])
  assert.ok(mills <= 2, `${mills} mills are kept`)
})

const files = Object.fromEntries(Array.from({ length: 20 }, (_, at) => [`file-${at}.test.js`, reset(10)]))
test('the module registry of Jest: 20 test files in one process', { skip }, async (t) => {
  const { ids, seen } = await jest(files, '--runInBand')
  assert.equal(ids.length, 600)
  const counts = seen.map(([first]) => first)
  t.diagnostic(`jest: threads and descriptors in the second of 20 files ${counts[1].join(' and ')}, in the last ${counts.at(-1).join(' and ')}`)
  assert.deepEqual(counts.at(-1), counts[1])
})

if (all) {
  test('the module registry of Jest: 20 test files in four processes', { skip }, async () => {
    const { ids } = await jest(files, '--maxWorkers=4')
    assert.equal(ids.length, 600)
  })
}

// nodemon starts its program again after each change of a file. A signal ends it in the
// middle of its work.
const server = `
import { appendFileSync } from 'node:fs'
import { open } from 'keymill'
let mill
// Before the first id: on a busy machine nodemon may end a program while it starts.
if (process.env.CLOSES) {
  for (const signal of ['SIGUSR2', 'SIGINT']) process.once(signal, () => (mill?.close(), process.kill(process.pid, signal)))
}
mill = open(process.env.KEYMILL_CONFIG)
const orders = mill.segment('orders')
const stamps = mill.snowflake('stamps', { lease: process.env.LEASE })
appendFileSync('ids', [...orders.take(100), ...stamps.take(100)].join('\\n') + '\\n')
setInterval(() => appendFileSync('ids', \`\${orders.next()}\\n\${stamps.next()}\\n\`), 1)
console.log('up', process.pid)
`

/** How many rows each table has. A source of snowflakes has one for its worker and one for its layout. */
function leftIn(file) {
  const { DatabaseSync } = createRequire(import.meta.url)('node:sqlite')
  const connection = new DatabaseSync(file, { readOnly: true })
  const count = (table) => connection.prepare(`SELECT count(*) AS n FROM ${table}`).get().n
  const found = Object.fromEntries(['keymill_segment', 'keymill_worker'].map((table) => [table, count(table)]))
  connection.close()
  return found
}

/** The processes that have this folder as their place. */
function livingIn(folder) {
  return readdirSync('/proc').filter((name) => {
    try {
      return /^\d+$/.test(name) && readlinkSync(`/proc/${name}/cwd`) === folder
    } catch {
      return false
    }
  })
}

for (const [how, env] of [['that closes its mill', { CLOSES: 'yes', LEASE: '30s' }], ['that a signal ends', { LEASE: '1s' }]]) {
  const restarts = all ? 50 : 5
  test(`nodemon: restarts of a program ${how}`, { skip }, async (t) => {
    const folder = realpathSync(project({ 'server.mjs': server, 'changed.json': '{}' }))
    const config = `sqlite:${join(folder, 'ids.db')}`
    let starts = 0
    const args = ['--quiet', '--delay', '10ms', '--watch', 'changed.json', 'server.mjs']
    const { child, done } = started('nodemon/bin/nodemon.js', args, folder, { KEYMILL_CONFIG: config, ...env }, (text) => {
      const now = text.match(/^up /gm)?.length ?? 0
      if (now === starts) return
      starts = now
      if (starts <= restarts) setTimeout(() => writeFileSync(join(folder, 'changed.json'), `{ "start": ${starts} }`), 20)
      else setTimeout(() => child.kill('SIGINT'), 20)
    })
    const { text } = await done
    await until(() => livingIn(folder).length === 0, 10_000)
    assert.equal(starts, restarts + 1, text)
    assert.equal(new Set(text.match(/^up \d+/gm)).size, starts, text)
    const ids = lines(folder, 'ids')
    once(ids)
    // A row of each source is what one run leaves, too. A process that is killed leaves the row of its leased worker, which the next one
    // takes once the lease has ended.
    const rows = leftIn(join(folder, 'ids.db'))
    if (env.CLOSES === undefined) await new Promise((over) => setTimeout(over, 1500))
    const mill = open(config)
    const next = [mill.segment('orders').next(), mill.snowflake('stamps', { lease: env.LEASE }).next()]
    mill.close()
    t.diagnostic(`nodemon, a program ${how}: ${restarts} restarts, ${ids.length} ids, rows left: ${rows.keymill_segment} of the segment, ${rows.keymill_worker} of the snowflake`)
    once([...ids, ...next.map(String)])
    assert.equal(rows.keymill_segment, 1)
    assert.ok(rows.keymill_worker <= (env.CLOSES ? 2 : restarts + 2), `${rows.keymill_worker} rows`)
    assert.deepEqual(leftIn(join(folder, 'ids.db')), rows)
  })
}
