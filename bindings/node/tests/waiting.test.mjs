import assert from 'node:assert/strict'
import { test } from 'node:test'
import { started, timers } from './timers.mjs'
import { gene, open } from 'keymill'
import { blackHole, fresh, run, scratch } from './support.mjs'

test('a promise that waits leaves the event loop running', async () => {
  const hole = await blackHole()
  const mill = open(`mysql://a@127.0.0.1:${hole.port}/ids?connect_timeout=60s&timeout=60s`)
  let turns = 0
  const beat = setInterval(() => turns++, 5)
  await assert.rejects(mill.segment('s', { deadline: '2s' }).nextAsync(), { code: 'DEADLINE' })
  clearInterval(beat)
  // One at most if it were blocked; the machine may be busy.
  assert.ok(turns > 3, `${turns} turns`)
  hole.end()
  await mill.closeAsync()
})

test('promises that wait ask for nothing before there are news', async () => {
  const hole = await blackHole()
  const mill = open(`mysql://a@127.0.0.1:${hole.port}/ids?connect_timeout=60s&timeout=60s`)
  const [ids, orders] = [mill.segment('s', { deadline: '60s' }), mill.business('order', { counters: 65536, deadline: '60s' })]
  const before = started.count
  const calls = Array.from({ length: 200 }, (_, key) => [ids.nextAsync(), orders.nextAsync(key), orders.takeAsync(key, 3)]).flat()
  await new Promise((done) => timers.setTimeout(done, 300))
  // The first call for each gene waits, and the others of the gene wait for it.
  const genes = new Set(Array.from({ length: 200 }, (_, key) => gene(key))).size
  assert.equal(started.count - before, 1 + genes + 1, 'a deadline each, and the pause of this test')
  const ends = Promise.allSettled(calls)
  hole.end()
  await mill.closeAsync()
  for (const { reason } of await ends) assert.equal(reason?.code, 'CLOSED')
})

test('a deadline passes under the timers of a test runner, which stand still', async () => {
  const hole = await blackHole()
  const mill = open(`mysql://a@127.0.0.1:${hole.port}/ids?connect_timeout=60s&timeout=60s`)
  const { setTimeout, performance } = globalThis
  Object.assign(globalThis, { setTimeout: () => 0 })
  Object.defineProperty(globalThis, 'performance', { value: { now: () => 0 }, configurable: true, writable: true })
  const pause = new Promise((done) => setTimeout(done, 20_000, 'it waits'))
  const ends = mill.segment('s', { deadline: '300ms' }).nextAsync().catch((error) => error.code)
  assert.equal(await Promise.race([ends, pause]), 'DEADLINE')
  Object.assign(globalThis, { setTimeout, performance })
  hole.end()
  await mill.closeAsync()
})

test('tryNext does not wait: null, and the reason once it is known', async () => {
  const hole = await blackHole()
  const mill = open(`mysql://a@127.0.0.1:${hole.port}/ids?connect_timeout=60s&timeout=60s`)
  const ids = mill.segment('s')
  const begin = performance.now()
  for (let i = 0; i < 1000; i++) assert.equal(ids.tryNext(), null)
  // A call that waits would take its deadline of three seconds.
  assert.ok(performance.now() - begin < 30_000)
  hole.end()
  await mill.closeAsync()
})

test('ids that cold promises wait for come in the order of the calls', async () => {
  // The store is silent first, so that all wait; small steps, so that some wait again.
  const mill = open('memory:?script=silent:60ms,ack:3,silent:30ms')
  const numbers = mill.segment('cold', { step: 7, max_step: 7 })
  const text = mill.serial('t', 'cold', { date: '', step: 7, max_step: 7 })
  for (const [ids, before] of [[numbers, (a, b) => a < b], [text, (a, b) => a < b], [mill.snowflake('x', { worker: 1 }), (a, b) => a < b]]) {
    const calls = Array.from({ length: 300 }, (_, i) => (i % 10 === 5 ? ids.takeAsync(3) : ids.nextAsync().then((id) => [id])))
    // Later calls of other turns of the loop keep the order, too.
    for (let turn = 0; turn < 20; turn++) {
      await new Promise((done) => setTimeout(done, turn % 4))
      calls.push(ids.nextAsync().then((id) => [id]), ids.takeAsync(2))
    }
    const got = (await Promise.all(calls)).flat()
    for (let i = 1; i < got.length; i++) assert.ok(before(got[i - 1], got[i]), `${ids}: ${got[i]} after ${got[i - 1]}`)
  }
  await mill.closeAsync()
})

test('who waits behind others waits no longer than its own deadline', async () => {
  const hole = await blackHole()
  const mill = open(`mysql://a@127.0.0.1:${hole.port}/ids?connect_timeout=60s&timeout=60s`)
  const ids = mill.segment('s', { deadline: '1s' })
  const waited = async (call) => {
    const begin = performance.now()
    await assert.rejects(call(), { code: 'DEADLINE' })
    return performance.now() - begin
  }
  const calls = []
  for (let i = 0; i < 10; i++) {
    calls.push(waited(() => ids.nextAsync()), waited(() => ids.takeAsync(3)))
    await new Promise((done) => setTimeout(done, 20))
  }
  // Twenty, one behind the other; the machine may be busy.
  for (const ms of await Promise.all(calls)) assert.ok(ms > 900 && ms < 15_000, `${ms} ms`)
  hole.end()
  await mill.closeAsync()
})

test('a close rejects every promise in flight with CLOSED', async () => {
  const hole = await blackHole()
  const mill = open(`mysql://a@127.0.0.1:${hole.port}/ids?connect_timeout=60s&timeout=60s`)
  const ids = mill.segment('s', { deadline: '60s' })
  const no = mill.serial('t', 'c', { deadline: '60s' })
  const waiting = Array.from({ length: 16 }, (_, i) => [() => ids.nextAsync(), () => ids.takeAsync(5), () => no.nextAsync(), () => no.takeAsync(2)][i % 4]())
  const begin = performance.now()
  setTimeout(() => mill.closeAsync(), 20)
  for (const answer of await Promise.allSettled(waiting)) assert.equal(answer.reason?.code, 'CLOSED')
  assert.ok(performance.now() - begin < 20_000)
  hole.end()
})

test('a close amid a storm of promises leaves each with an id of its own or CLOSED', async () => {
  const mill = open(`sqlite:${scratch()}/storm.db`)
  const ids = mill.segment('s', { block: 3, min_step: 10, max_step: 50, deadline: '60s' })
  const takes = Array.from({ length: 4000 }, (_, i) => (i % 3 ? ids.nextAsync().then((id) => [id]) : ids.takeAsync(7)))
  await takes[1]
  mill.close()
  const answers = await Promise.allSettled(takes)
  const got = answers.flatMap((answer) => answer.value ?? [])
  assert.equal(new Set(got).size, got.length)
  assert.ok(got.length > 0)
  for (const { reason } of answers) assert.ok(reason === undefined || reason.code === 'CLOSED', String(reason))
})

test('numbers that a batch waits for are not overtaken', async () => {
  const mill = open(fresh())
  const ids = mill.segment('order', { block: 1000, step: 20, max_step: 20 })
  let last = 0n
  for (let round = 0; round < 300; round++) {
    // The batch begins first and needs several refills; ids taken meanwhile must not stay behind it.
    let done = false
    const batch = ids.takeAsync(90).then((got) => ((done = true), got))
    const between = []
    while (!done) {
      between.push(ids.next())
      await null
      if (between.length % 8 === 0) await new Promise(setImmediate)
    }
    const got = await batch
    for (let i = 1; i < got.length; i++) assert.ok(got[i] > got[i - 1])
    for (let i = 1; i < between.length; i++) assert.ok(between[i] > between[i - 1])
    const after = ids.next()
    assert.ok(after > got.at(-1) && after > (between.at(-1) ?? 0n), `${after} after ${got.at(-1)}`)
    assert.ok(got[0] > last)
    last = after
    assert.equal(new Set([...got, ...between]).size, got.length + between.length)
  }
  mill.close()
})

test('batches and single ids rise together', () => {
  const mill = open(fresh())
  const ids = mill.segment('verbs', { block: 16 })
  const no = mill.serial('t', 'verbs', { number: '0'.repeat(12), date: '' })
  let last = 0n
  let lastText = ''
  const rises = (id) => {
    assert.ok(id > last, `${id} after ${last}`)
    last = id
  }
  for (let i = 0; i < 2000; i++) {
    rises(ids.next())
    for (const id of ids.take(i % 40)) rises(id)
    const now = ids.tryNext()
    if (now !== null) rises(now)
    for (const id of ids.fill(new BigUint64Array(i % 25))) rises(id)
    for (const text of [no.next(), ...no.take(i % 40)]) {
      assert.ok(text > lastText)
      lastText = text
    }
  }
  mill.close()
})

test('an open mill does not keep the process alive, and a promise does', async () => {
  const { done } = run('exit.mjs', [`sqlite:${scratch()}/ids.db`])
  const { code, signal, out, err } = await done
  assert.deepEqual({ code, signal, err, out }, { code: 0, signal: null, err: '', out: '1\n2\n' })
})

const keepsMemory = process.versions.deno !== undefined && 'Deno keeps about 100 bytes of each source'
test('short-lived sources give their memory back', { skip: keepsMemory }, async (t) => {
  const { code, out, err } = await run('storm.mjs', [], { flags: ['--expose-gc'] }).done
  assert.equal(code, 0, out + err)
  t.diagnostic(out.trim())
})
