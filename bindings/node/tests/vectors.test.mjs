// Plays `tests/vectors/*.json`: one behaviour in every language. The format stands in that folder's README.
import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { appendFileSync, existsSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { test } from 'node:test'
import { MessageChannel, Worker, receiveMessageOnPort } from 'node:worker_threads'
import { KeymillError, OrderNumbers, Router, gene, open, storeOf } from 'keymill'

const require = createRequire(import.meta.url)
const root = process.env.KEYMILL_ROOT ?? fileURLToPath(new URL('../../..', import.meta.url))
const folder = process.env.KEYMILL_VECTORS ?? join(root, 'tests', 'vectors')
const { native } = require(join(require.resolve('keymill/package.json'), '..', 'dist', 'native.js'))

const text = (id) => String(id)
const key = (step) => (step.key_text === undefined ? BigInt(step.key) : step.key_text.repeat(Number(step.times ?? 1)))
const texts = ({ paused, ...route }) => ({ ...Object.fromEntries(Object.entries(route).map(([name, value]) => [name, text(value)])), ...(paused ? { paused: 'yes' } : {}) })

/** What each step does, with what the case has so far. */
const steps = {
  open(it, { config }) {
    it.mill?.close()
    it.mill = undefined
    it.mill = open(config)
  },
  close: (it) => it.mill.close(),
  source(it, { as, spec }) {
    it.sources[as] = it.mill.source(spec)
  },
  next: (it, { of }) => text(it.sources[of].next()),
  try_next(it, { of }) {
    const id = it.sources[of].tryNext()
    // Nothing in memory is no error here.
    if (id === null) throw new KeymillError('NOT_READY', 'null')
    return text(id)
  },
  next_for: (it, step) => text(it.sources[step.of].next(key(step))),
  next_wide_for: (it, step) => text(it.sources[step.of].next(key(step))),
  try_next_for(it, step) {
    const id = it.sources[step.of].tryNext(key(step))
    if (id === null) throw new KeymillError('NOT_READY', 'null')
    return text(id)
  },
  take_for: (it, step) => it.sources[step.of].take(key(step), Number(step.count)).map(text),
  take_wide_for: (it, step) => steps.take_for(it, step),
  take: (it, { of, count }) => it.sources[of].take(Number(count)).map(text),
  parse(it, { of, id }) {
    const parts = it.sources[of].parse(id)
    const entries = Object.entries(parts).map(([name, value]) => [name, value instanceof Date ? value.toISOString() : text(value)])
    return Object.fromEntries(entries)
  },
  parse_number: (it, { of, id }) => steps.parse(it, { of, id: BigInt(id) }),
  clock_set: (it, { ms }) => it.mill.setClock(Number(ms)),
  clock_advance: (it, { ms }) => it.mill.advanceClock(Number(ms)),
  gene: (_, step) => text(gene(key(step))),
  router(it, { as, table }) {
    it.routers[as] = Router.fromText(table)
  },
  load(it, { of, table }) {
    it.routers[of].load(table)
  },
  document(_, { kind, table, text: pieces }) {
    const folder = mkdtempSync(join(tmpdir(), 'keymill-vectors-'))
    try {
      const path = join(folder, 'document.toml')
      writeFileSync(path, pieces.map(([piece, times]) => piece.repeat(Number(times))).join(''), { mode: 0o600 })
      onASmallStack(kind, table, path)
    } finally {
      rmSync(folder, { recursive: true })
    }
  },
  next_text: (it, { of }) => it.sources[of].nextText(),
  take_text: (it, { of, count }) => it.sources[of].takeText(Number(count)),
  next_text_for: (it, step) => it.sources[step.of].nextText(key(step)),
  take_text_for: (it, step) => it.sources[step.of].takeText(key(step), Number(step.count)),
  text_of: (it, { of, id }) => it.sources[of].textOf(BigInt(id)),
  route: (it, { of, id }) => texts(it.routers[of].route(BigInt(id))),
  is_current(it, { of, id, table }) {
    const route = it.routers[of].route(BigInt(id))
    it.routers[of].load(table)
    return it.routers[of].isCurrent(route) ? 'yes' : 'no'
  },
  route_wide: (it, { of, id }) => texts(it.routers[of].routeWide(BigInt(id))),
  route_key: (it, step) => texts(it.routers[step.of].routeKey(key(step))),
  store_of: (_, { url, properties = [] }) => storeOf(url, Object.fromEntries(properties)),
  spec: (_, { kind, name, options }) => native.specString(kind, name, options),
  route_order_no: (it, { of, no, number, text: given }) => texts(it.routers[of].routeOrderNo(given ?? (no === undefined ? BigInt(number) : bytes(no)))),
  numbers(it, { as, keys, seal_with, tenant, table, version }) {
    const all = new Map(keys.map(([name, key]) => [Number(name), bytes(key)]))
    const numbers = OrderNumbers.fromKeys(all, Number(seal_with), tenant, table)
    it.numbers[as] = version === undefined ? numbers : numbers.withVersion(Number(version))
  },
  numbers_version: (it, { of }) => text(it.numbers[of].version),
}

// Reads the document of this path. The first 192 KiB of a worker's stack are Node's own.
const reader = `
  const { parentPort, workerData } = require('node:worker_threads')
  const { kind, table, path, port, done } = workerData
  const { OrderNumbers, Router, open } = require(workerData.keymill)
  const text = () => require('node:fs').readFileSync(path, 'utf8')
  const read = {
    routes: () => Router.fromText(text()),
    load: () => Router.fromText(table).load(text()),
    keys: () => OrderNumbers.open(path),
    config: () => open('file:' + path),
  }[kind]
  let answer = {}
  try {
    read()
  } catch (e) {
    answer = { code: e.code, message: e.message }
  }
  port.postMessage(answer)
  Atomics.store(done, 0, 1)
  Atomics.notify(done, 0)`

/** Reads a document in a worker with a small stack, and throws what it throws. */
function onASmallStack(kind, table, path) {
  const { port1, port2 } = new MessageChannel()
  const done = new Int32Array(new SharedArrayBuffer(4))
  const workerData = { kind, table, path, done, port: port2, keymill: require.resolve('keymill') }
  const worker = new Worker(reader, { eval: true, workerData, transferList: [port2], resourceLimits: { stackSizeMb: 0.4375 } })
  worker.unref()
  assert.equal(Atomics.wait(done, 0, 0, 60_000), 'ok', `the worker that read the ${kind} has not answered`)
  const { code, message } = receiveMessageOnPort(port1).message
  port1.close()
  if (code !== undefined) throw new KeymillError(code, message)
}

const bytes = (digits) => Buffer.from(digits, 'hex')
const told = (answer) => (Array.isArray(answer) ? answer.map(told) : answer instanceof Uint8Array ? answer.toString('hex') : text(answer))
// The verbs of order numbers: 16 bytes are hexadecimal digits in the vectors.
for (const [verb, given] of [
  ['seal', BigInt],
  ['unseal', bytes],
  ['seal_wide', BigInt],
  ['unseal_wide', bytes],
  ['seal8', BigInt],
  ['unseal8', BigInt],
  ['seal_text', BigInt],
  ['unseal_text', text],
  ['seal_wide_text', BigInt],
  ['unseal_wide_text', text],
  ['seal8_text', BigInt],
  ['unseal8_text', text],
  ['seal_all', BigInt],
  ['unseal_all', bytes],
  ['seal8_all', BigInt],
  ['unseal8_all', BigInt],
]) {
  const name = verb.replace(/_(.)/g, (_, letter) => letter.toUpperCase())
  steps[verb] = (it, { of, id, no, ids, nos }) => {
    const all = ids ?? nos
    return told(it.numbers[of][name](all ? all.map((one) => given(one)) : given(id ?? no)))
  }
}

function play(it, step) {
  const run = steps[step.do]
  assert.ok(run, `an unknown step: ${step.do}`)
  let answer
  try {
    answer = run(it, step)
  } catch (e) {
    if (!(e instanceof KeymillError) || step.error === undefined) throw e
    assert.equal(e.code, step.error, e.message)
    assert.doesNotMatch(e.message, /\p{Cc}/u, step.do)
    if (step.says !== undefined && e.message !== 'null') assert.ok(e.message.includes(step.says), `${e.message} says nothing of ${step.says}`)
    return
  }
  assert.equal(step.error, undefined, `${JSON.stringify(answer)} instead of ${step.error}`)
  if (step.is !== undefined) assert.deepEqual(answer, step.is)
}

if (!existsSync(folder)) {
  test('vectors', { skip: `there is no ${folder}` }, () => {})
} else {
  for (const file of readdirSync(folder).filter((name) => name.endsWith('.json')).sort()) {
    const stem = basename(file, '.json')
    const { cases } = JSON.parse(readFileSync(join(folder, file), 'utf8'))
    for (const { name, mill, steps: list } of cases) {
      test(`${stem}/${name}`, () => {
        const it = { mill: mill === undefined ? undefined : open(mill), sources: {}, routers: {}, numbers: {} }
        try {
          list.forEach((step, at) => {
            try {
              play(it, step)
            } catch (e) {
              throw new Error(`step ${at + 1}, ${JSON.stringify(step)}: ${e.message}`, { cause: e })
            }
          })
        } finally {
          it.mill?.close()
        }
        if (process.env.KEYMILL_VECTORS_RAN) appendFileSync(process.env.KEYMILL_VECTORS_RAN, `${stem}/${name}\n`)
      })
    }
  }
}
