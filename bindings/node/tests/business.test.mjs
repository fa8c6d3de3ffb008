// Business ids: keys in, ids that carry the key's gene out.
import { started } from './timers.mjs'
import assert from 'node:assert/strict'
import { inspect } from 'node:util'
import { test } from 'node:test'
import { Business, gene, KeymillError, open } from 'keymill'
import { fresh, run, scratch, until } from './support.mjs'

const GENE_OF_42 = 61763n
const GENE_OF_BUYER_42 = 56443n
const id = (gene, number) => (gene << 47n) | BigInt(number)

function refused(code, verb, ...words) {
  assert.throws(verb, (e) => {
    assert.ok(e instanceof KeymillError, String(e))
    assert.equal(e.code, code, e.message)
    for (const word of words) assert.ok(e.message.includes(word), `${e.message} says nothing of ${word}`)
    return true
  })
}

test('an id carries the gene of its key, by every verb', async () => {
  const mill = open(fresh())
  const orders = mill.business('order')
  assert.equal(orders.next(42), id(GENE_OF_42, 1))
  assert.equal(orders.next(42n), id(GENE_OF_42, 2))
  assert.equal(orders.next('buyer-42'), id(GENE_OF_BUYER_42, 3))
  assert.deepEqual(orders.take(42, 2), [id(GENE_OF_42, 4), id(GENE_OF_42, 5)])
  assert.deepEqual(orders.take(42, 0), [])
  assert.equal(orders.tryNext('buyer-42'), id(GENE_OF_BUYER_42, 6))
  assert.equal(await orders.nextAsync(42), id(GENE_OF_42, 7))
  assert.deepEqual(await orders.takeAsync('buyer-42', 2), [id(GENE_OF_BUYER_42, 8), id(GENE_OF_BUYER_42, 9)])
  const many = orders.take(42n, 5000)
  assert.deepEqual(many, many.map((_, i) => id(GENE_OF_42, 10 + i)))
  const again = mill.source('business:order')
  assert.ok(again instanceof Business)
  assert.equal(again.next(42), id(GENE_OF_42, 5010))
  assert.deepEqual(orders.parse(id(GENE_OF_BUYER_42, 17)), { gene: 56443, number: 17n })
  assert.equal(orders.label, 'business:order')
  assert.equal(inspect(orders), 'Business business:order')
  assert.equal(orders.settings.counters, '1')
  assert.equal(orders.stats().issued, 5010)
  mill.close()
})

test('keys at the ends', () => {
  const mill = open(fresh())
  const orders = mill.business('order')
  for (const key of [0, -1, Number.MAX_SAFE_INTEGER, Number.MIN_SAFE_INTEGER, -(2n ** 63n), 2n ** 63n, 2n ** 64n - 1n, '', '用户', '\u{10437}', '\uFFFD', 'x'.repeat(65536)]) {
    assert.ok(orders.next(key) > 0n)
  }
  // A negative key is its two's complement; short and long texts go different ways to the same gene.
  assert.equal(orders.next(-1) >> 47n, orders.next(2n ** 64n - 1n) >> 47n)
  for (const length of [1, 500, 506, 507, 508, 511, 512, 513, 4000]) {
    assert.equal(orders.next('ü'.repeat(length)) >> 47n, orders.tryNext('ü'.repeat(length)) >> 47n)
  }
  mill.close()
})

test('ids of 128 bits', async () => {
  const mill = open(fresh())
  const orders = mill.business('order', { wide: 'on' })
  const first = (GENE_OF_BUYER_42 << 111n) | 1n
  assert.equal(orders.next('buyer-42'), first)
  assert.equal(orders.tryNext('buyer-42'), first + 1n)
  assert.deepEqual(orders.take('buyer-42', 2), [first + 2n, first + 3n])
  assert.equal(await orders.nextAsync('buyer-42'), first + 4n)
  assert.deepEqual(await orders.takeAsync('buyer-42', 1), [first + 5n])
  assert.deepEqual(orders.parse(first), { gene: 56443, number: 1n })
  assert.deepEqual(orders.parse(String(first)), { gene: 56443, number: 1n })
  // A bigint does not say its form: a number that fits both is refused, and the bytes say it.
  const both = id(61763n, 7n)
  for (const wrong of [both, String(both)]) refused('INVALID_ARGUMENT', () => orders.parse(wrong), '128')
  const bytes = Buffer.alloc(16)
  bytes.writeBigUInt64BE(both, 8)
  assert.deepEqual(orders.parse(bytes.subarray(8)), { gene: 61763, number: 7n })
  assert.deepEqual(orders.parse(bytes), { gene: 0, number: both })
  refused('INVALID_ARGUMENT', () => orders.parse(bytes.subarray(1)), '15 bytes')
  mill.close()
})

test('a wrong key is refused in words', async () => {
  const mill = open(fresh())
  const orders = mill.business('order')
  for (const key of [undefined, null, true, 1.5, NaN, Infinity, 2 ** 53, 2n ** 64n, -(2n ** 63n) - 1n, {}, [], Symbol('x'), () => 1]) {
    refused('INVALID_ARGUMENT', () => orders.next(key), 'a key ')
    refused('INVALID_ARGUMENT', () => orders.tryNext(key), 'a key ')
    refused('INVALID_ARGUMENT', () => orders.take(key, 3), 'a key ')
    await assert.rejects(orders.nextAsync(key), { code: 'INVALID_ARGUMENT' })
    await assert.rejects(orders.takeAsync(key, 3), { code: 'INVALID_ARGUMENT' })
  }
  refused('INVALID_ARGUMENT', () => orders.next(), 'not undefined')
  refused('INVALID_ARGUMENT', () => orders.next('\ud800'), 'surrogate')
  for (const key of ['x'.repeat(65537), 'ü'.repeat(32769)]) refused('INVALID_ARGUMENT', () => orders.next(key), '65536')
  for (const count of [-1, 1.5, '3', undefined, 2 ** 40]) refused('INVALID_ARGUMENT', () => orders.take(42, count))
  for (const wrong of [0, -1, 2n ** 63n, 2n ** 127n, 'x', null, {}]) refused('INVALID_ARGUMENT', () => orders.parse(wrong))
  refused('INVALID_CONFIG', () => mill.business('order', { counters: 3 }), 'power of two')
  refused('INVALID_ARGUMENT', () => mill.business(5))
  refused('INVALID_ARGUMENT', () => new Business(), 'mill')
  assert.equal(orders.next(42) & 0xffffn, 1n)
  mill.close()
})

test('a store that is silent ends a wait at the deadline, and blocks no loop', async () => {
  const mill = open(`${fresh()}?script=silent:20s`)
  const orders = mill.business('order', { deadline: '200ms' })
  refused('DEADLINE', () => orders.next(42))
  refused('DEADLINE', () => orders.take(42, 3))
  assert.equal(orders.tryNext(42), null)
  let turns = 0
  const timer = setInterval(() => turns++, 1)
  await assert.rejects(orders.nextAsync(42), { code: 'DEADLINE' })
  await assert.rejects(orders.takeAsync(42, 3), { code: 'DEADLINE' })
  clearInterval(timer)
  // Two at most if it were blocked; the machine may be busy.
  assert.ok(turns > 3, `${turns} turns`)
  await mill.closeAsync()
})

// A mill with a manual clock does not repeat a request that failed before the clock is moved: until then all calls wait.
const held = (script) => open(`${fresh()}?clock=manual&script=${script}`)

test('promises of many cold keys are served in a few batches', async () => {
  // The first request fails. Nine more make the record and serve 512 counters each; later ones fail.
  const mill = held('down,ack:9,down:1000')
  const orders = mill.business('order', { counters: 4096, deadline: '60s' })
  const calls = Array.from({ length: 4096 }, (_, key) => (key % 2 ? orders.nextAsync(key) : orders.takeAsync(key, 1).then(([id]) => id)))
  await until(() => orders.stats().refusal)
  mill.advanceClock(60_000)
  const ids = await Promise.all(calls)
  assert.equal(new Set(ids).size, ids.length)
  mill.close()
})

test('a key whose ids are in memory waits for no cold key', async () => {
  const mill = held('ack:2,down:1000')
  const orders = mill.business('order', { counters: 65536, deadline: '60s' })
  assert.equal(orders.next(42), id(GENE_OF_42, 1))
  let waits = 0
  const cold = ['buyer-42', 'buyer-43'].flatMap((key) => [orders.nextAsync(key), orders.takeAsync(key, 3)])
  for (const call of cold) {
    waits++
    call.catch(() => {}).finally(() => waits--)
  }
  assert.equal(await orders.nextAsync(42), id(GENE_OF_42, 2))
  assert.deepEqual(await orders.takeAsync(42, 2), [id(GENE_OF_42, 3), id(GENE_OF_42, 4)])
  assert.equal(waits, 4)
  // A close ends the waits of all keys.
  mill.close()
  for (const { reason } of await Promise.allSettled(cold)) assert.equal(reason?.code, 'CLOSED')
})

test('promises of one key that wait get their ids in the order of the calls', async () => {
  const mill = held('down,ack:1000')
  const orders = mill.business('order', { counters: 16, step: 7, max_step: 7, deadline: '60s' })
  const keys = Array.from({ length: 40 }, (_, i) => `buyer-${i}`)
  const calls = new Map(keys.map((key) => [key, []]))
  for (let round = 0; round < 30; round++) {
    for (const key of keys) calls.get(key).push(round % 10 === 5 ? orders.takeAsync(key, 3) : orders.nextAsync(key).then((id) => [id]))
  }
  await until(() => orders.stats().refusal)
  mill.advanceClock(60_000)
  const all = new Set()
  for (const [key, waiting] of calls) {
    const ids = (await Promise.all(waiting)).flat()
    for (let i = 1; i < ids.length; i++) assert.ok(ids[i] > ids[i - 1], `${key}: ${ids[i]} after ${ids[i - 1]}`)
    for (const id of ids) all.add(id)
  }
  assert.equal(all.size, 40 * 36)
  mill.close()
})

test('a promise that waits for a key keeps the process alive, and its mill does not', async () => {
  const { code, signal, out, err } = await run('exit.mjs', [`sqlite:${scratch()}/ids.db`, 'business']).done
  assert.deepEqual({ code, signal, err, out }, { code: 0, signal: null, err: '', out: '1\n1\n' })
})

test('calls for many keys that wait leave the event loop to others', async () => {
  const mill = open(`${fresh()}?script=silent:20s`)
  const orders = mill.business('order', { counters: 65536, deadline: '60s' })
  const genes = new Set(Array.from({ length: 5000 }, (_, key) => gene(key))).size
  // Each gene asks for its ids again after such a pause, where it is told of no news before.
  const pauses = []
  started.instead = (done, ms) => {
    pauses.push(ms)
    return setImmediate(done)
  }
  const calls = Array.from({ length: 5000 }, (_, key) => (key % 2 ? orders.nextAsync(key) : orders.takeAsync(key, 3)))
  while (pauses.length <= genes) await new Promise(setImmediate)
  for (const ms of pauses) assert.ok(ms >= genes / 100, `${ms} ms for ${genes} keys`)
  started.instead = undefined
  mill.close()
  for (const { reason } of await Promise.allSettled(calls)) assert.equal(reason?.code, 'CLOSED')
})

test('a key that no call waits for costs no memory in JavaScript', async (t) => {
  const { code, out, err } = await run('keys.mjs', [], { flags: ['--expose-gc'] }).done
  assert.equal(code, 0, out + err)
  t.diagnostic(out.trim())
})

test('a closed mill is said', async () => {
  const mill = open(fresh())
  const orders = mill.business('order')
  orders.next(42)
  mill.close()
  refused('CLOSED', () => orders.next(42))
  refused('CLOSED', () => orders.tryNext(42))
  refused('CLOSED', () => orders.take(42, 3))
  await assert.rejects(orders.nextAsync(42), { code: 'CLOSED' })
})
