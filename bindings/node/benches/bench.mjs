// Speed against what people use instead, in one run: `npm install && node --expose-gc bench.mjs` (about two minutes).
// Needs the built package (`node ../build.mjs`). Prints Markdown tables; `--write` puts them into docs/languages/node.md.
// Ratios count, times depend on the machine; losing rows stay.
import { execFileSync } from 'node:child_process'
import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Worker } from 'node:worker_threads'
import { Snowflake as Sapphire } from '@sapphire/snowflake'
import FlakeId from 'flake-idgen'
import { measure } from 'mitata'
import { Snowflake as NodeSnowflake } from 'nodejs-snowflake'
import { Snowyflake } from 'snowyflake'
import { ulid } from 'ulid'
import { v7 } from 'uuid'
import { lazy, open, use } from '../dist/index.js'

const ROUNDS = Number(process.env.ROUNDS ?? 7)
const require = createRequire(import.meta.url)
const folder = mkdtempSync(join(tmpdir(), 'keymill-bench-'))
process.on('exit', () => rmSync(folder, { recursive: true, force: true }))

/** A plain napi call that answers with a BigInt: `plain.rs`. */
function plainCall() {
  const root = fileURLToPath(new URL('../../..', import.meta.url))
  const target = process.env.CARGO_TARGET_DIR ?? join(root, 'target')
  execFileSync('cargo', ['build', '--quiet', '--release', '--package', 'keymill-node', '--example', 'plain'], { cwd: root, stdio: 'inherit' })
  copyFileSync(join(target, 'release', 'examples', 'libplain.so'), join(folder, 'plain.node'))
  return require(join(folder, 'plain.node')).plain
}

const mill = open('memory:')
const orders = mill.segment('orders')
const byThread = mill.segment('by-thread', { order: 'thread' })
use(mill)
const declared = lazy('segment:declared')
const handle = mill.segment('handle').handle()
const js53 = mill.snowflake('web', { worker: 1, layout: 'time:33@1s,worker:1,seq:19', as: 'number' })
const tx = mill.snowflake('tx', { worker: 1, layout: 'time:39@10ms,worker:3,seq:21' })
const sales = mill.business('order')
const no = mill.serial('cust_info', 'custid', { date: 'yyyyMMdd', number: '0'.repeat(12) })
const loop = orders[Symbol.iterator]()
const array = new BigUint64Array(1000)
const text = Buffer.alloc(32)

const plain = plainCall()
const sapphire = new Sapphire(new Date('2025-01-01'))
const flake = new FlakeId()
const node = new NodeSnowflake()
const snowy = new Snowyflake({ workerId: 1n, processId: 1n, epoch: 1735689600000n })

const kept = new Array(1024)
let batch
let slot = 0
// Every id goes to an array, so that it must exist.
const keep = (id) => {
  kept[slot++ & 1023] = id
}
const daily = () => {
  // What a program writes by hand: a counter and the day.
  const day = new Date().toISOString().slice(0, 10).replaceAll('-', '')
  keep(day + String(slot).padStart(12, '0'))
}

/** name → [function, ids a call] */
const cases = {
  'plain napi call': [() => keep(plain()), 1],
  'segment `next()`, order=process': [() => keep(orders.next()), 1],
  'segment `next()`, order=thread': [() => keep(byThread.next()), 1],
  'segment, `lazy` called': [() => keep(declared()), 1],
  'segment handle `next()`': [() => keep(handle.next()), 1],
  'segment, `for…of`': [() => keep(loop.next().value), 1],
  'segment `take(1000)`': [() => (batch = orders.take(1000)), 1000],
  'segment `fill(1000)`': [() => keep(orders.fill(array)), 1000],
  'snowflake `next()`': [() => keep(tx.next()), 1],
  'snowflake `next()`, as number': [() => keep(js53.next()), 1],
  'snowflake `fill(1000)`': [() => keep(tx.fill(array)), 1000],
  'business `next(42)`': [() => keep(sales.next(42)), 1],
  'business `next(42n)`': [() => keep(sales.next(42n)), 1],
  'business `next`, a text of 16': [() => keep(sales.next('buyer-0123456789')), 1],
  'business `take(42, 1000)`': [() => (batch = sales.take(42, 1000)), 1000],
  'serial `next()`': [() => keep(no.next()), 1],
  'serial `next()`, written to a buffer': [() => keep(text.latin1Write(no.next())), 1],
  'serial `take(1000)`': [() => (batch = no.take(1000)), 1000],
  '@sapphire/snowflake': [() => keep(sapphire.generate()), 1],
  'flake-idgen': [
    () => {
      try {
        keep(flake.next())
      } catch {
        // It throws above 4096 a millisecond.
      }
    },
    1,
  ],
  snowyflake: [() => keep(snowy.nextId()), 1],
  'nodejs-snowflake': [() => keep(node.getUniqueID()), 1],
  'uuid v7': [() => keep(v7()), 1],
  ulid: [() => keep(ulid()), 1],
  'date and padded counter by hand': [daily, 1],
}

const times = Object.fromEntries(Object.keys(cases).map((name) => [name, []]))
for (let round = 0; round < ROUNDS; round++) {
  for (const [name, [fn, ids]] of Object.entries(cases)) {
    const { p50 } = await measure(fn, { min_cpu_time: 200e6, inner_gc: false })
    times[name].push(p50 / ids)
  }
  process.stderr.write(`round ${round + 1} of ${ROUNDS}\r`)
}
const median = (list) => [...list].sort((a, b) => a - b)[list.length >> 1]
const ns = Object.fromEntries(Object.entries(times).map(([name, list]) => [name, median(list)]))
/** So many digits, and never a power of ten. */
const digits = (value, n) => String(Number(value.toPrecision(n)))
const ratio = (name, to) => digits(ns[name] / ns[to], 2)

const tables = {}
let table
/** A line of the section that is being written. */
const say = (line) => {
  console.log(line)
  tables[table] = `${tables[table] ?? ''}${line}\n`
}
table = 'speed'
say(`Node ${process.version}, ${process.platform}-${process.arch}; medians of ${ROUNDS} interleaved rounds, one thread.\n`)
say('| | ns an id | ÷ plain napi call | ÷ @sapphire/snowflake | ÷ flake-idgen |\n|---|---:|---:|---:|---:|')
for (const name of Object.keys(cases)) {
  say(`| ${name} | ${digits(ns[name], 3)} | ${ratio(name, 'plain napi call')} | ${ratio(name, '@sapphire/snowflake')} | ${ratio(name, 'flake-idgen')} |`)
}

/** Ids that came twice in a million taken in one loop, as far as the package hands them out. */
function duplicates(next) {
  const seen = new Set()
  let refused = 0
  for (let i = 0; i < 1_000_000; i++) {
    try {
      seen.add(next())
    } catch {
      refused++
    }
  }
  return { duplicates: 1_000_000 - refused - seen.size, refused }
}
const twice = {
  'keymill segment': duplicates(() => orders.next()),
  'keymill snowflake': duplicates(() => tx.next()),
  '@sapphire/snowflake': duplicates(() => sapphire.generate()),
  'flake-idgen': duplicates(() => flake.next().readBigUInt64BE()),
  snowyflake: duplicates(() => snowy.nextId()),
  'nodejs-snowflake': duplicates(() => node.getUniqueID()),
  'uuid v7': duplicates(() => v7()),
  ulid: duplicates(() => ulid()),
}
table = 'twice'
say('| a million in a tight loop | duplicates | refused |\n|---|---:|---:|')
for (const [name, it] of Object.entries(twice)) say(`| ${name} | ${it.duplicates} | ${it.refused} |`)

/** Nanoseconds an id, two threads together. */
async function together(kind) {
  const shared = new Int32Array(new SharedArrayBuffer(8))
  const workers = [0, 1].map(() => new Worker(new URL('worker.mjs', import.meta.url), { workerData: { kind, shared, plain: join(folder, 'plain.node') } }))
  const answers = await Promise.all(workers.map((worker) => new Promise((done) => worker.once('message', done))))
  const wall = Math.max(...answers.map((it) => it.end)) - Math.min(...answers.map((it) => it.begin))
  return (wall * 1e6) / answers.reduce((sum, it) => sum + it.ids, 0)
}
const two = {}
for (let round = 0; round < 5; round++) {
  for (const kind of ['plain napi call', 'order=process', 'order=thread', 'order=process, `fill(1000)`']) (two[kind] ??= []).push(await together(kind))
}
table = 'two'
say('| two workers on one source | ns an id, both together | ÷ plain napi call |\n|---|---:|---:|')
const napi = median(two['plain napi call'])
for (const [kind, list] of Object.entries(two)) say(`| ${kind} | ${digits(median(list), 3)} | ${digits(median(list) / napi, 2)} |`)

const wall = (code) => {
  const begin = performance.now()
  execFileSync(process.execPath, ['-e', code], { cwd: folder })
  return performance.now() - begin
}
const home = JSON.stringify(fileURLToPath(new URL('../dist/index.js', import.meta.url)))
const starts = { bare: [], first: [] }
for (let i = 0; i < 21; i++) {
  starts.bare.push(wall('0'))
  starts.first.push(wall(`const mill = require(${home}).open('sqlite:start${i}.db'); console.log(mill.segment('s').next()); mill.close()`))
}
const start = median(starts.first) - median(starts.bare)
table = 'start'
say(`Start: import, open, first id on a new SQLite file and close cost ${start.toFixed(0)} ms beyond Node's own ${median(starts.bare).toFixed(0)} ms (goal: 50).`)
if (process.argv.includes('--write')) {
  const file = new URL('../../../docs/languages/node.md', import.meta.url)
  const text = Object.entries(tables).reduce(
    (readme, [name, lines]) => readme.replace(new RegExp(`(<!-- ${name} -->\\n)[^]*?(<!-- end -->)`), (_, begin, end) => begin + lines + end),
    readFileSync(file, 'utf8'),
  )
  writeFileSync(file, text)
}
mill.close()
