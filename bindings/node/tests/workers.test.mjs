import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { test } from 'node:test'
import { Worker } from 'node:worker_threads'
import { open } from 'keymill'
import { blackHole, fresh, scratch, until } from './support.mjs'

/** Begins `task` of `programs/worker.mjs`; `told` are its messages. */
function begin(task, data = {}) {
  const worker = new Worker(new URL('programs/worker.mjs', import.meta.url), { workerData: { task, ...data } })
  const told = []
  worker.on('message', (message) => told.push(message))
  let failure
  worker.on('error', (error) => (failure = error))
  const done = new Promise((end, fail) => worker.on('exit', () => (failure ? fail(failure) : end(told))))
  return { worker, told, done }
}

test('workers that open one string share one mill', async () => {
  const config = fresh()
  const mill = open(config)
  const ids = mill.segment('shared')
  assert.equal(ids.next(), 1n)
  const [one] = await begin('take', { config, count: 5 }).done
  const [two] = await begin('take', { config, count: 5 }).done
  const all = [1n, ...one, ...two, ids.next()]
  assert.equal(new Set(all).size, all.length)
  for (let i = 1; i < all.length; i++) assert.ok(all[i] > all[i - 1], String(all))
  mill.close()
})

for (const kind of ['segment', 'serial']) {
  test(`a ${kind}'s ids rise strictly over all workers, while workers come and go`, async () => {
    const config = `sqlite:${scratch()}/ids.db`
    const latest = new BigInt64Array(new SharedArrayBuffer(16))
    const mill = open(config)
    const { hammer } = await import('./programs/hammer.mjs')
    // Alone at first, with a block; then workers arrive in the middle of it, each for a while, and leave.
    const counts = [hammer(mill, kind, latest, 20_000)]
    const ends = []
    for (let wave = 0; wave < 6; wave++) {
      const { done } = begin('hammer', { config, kind, latest, count: 30_000 })
      ends.push(done)
      counts.push(hammer(mill, kind, latest, 60_000))
      if (wave % 2) await done
    }
    for (const told of await Promise.all(ends)) counts.push(told[0])
    const all = counts.reduce((sum, count) => ({ violations: sum.violations + count.violations, ids: sum.ids + count.ids }))
    assert.equal(all.violations, 0)
    assert.equal(all.ids, 20_000 + 6 * 90_000)
    mill.close()
  })
}

// Bun and Deno keep the values of a worker that ended, so its sources stay in use: ids come one by one, in order.
const keepsValues = (process.versions.bun ?? process.versions.deno) !== undefined && 'this runtime keeps the values of workers that ended'
test('who stays alone counts by blocks again', { skip: keepsValues }, async () => {
  const config = fresh()
  const mill = open(config)
  // The smallest block, so that none grows.
  const ids = mill.segment('back', { block: 16 })
  for (let i = 0; i < 128; i++) ids.next()
  /** How many numbers two ids cost: a block, where one is leased. */
  const cost = () => {
    const before = ids.stats().issued
    ids.next()
    ids.next()
    return ids.stats().issued - before
  }
  assert.equal(cost(), 16)
  const { worker, told, done } = begin('hold', { config, name: 'back', options: { block: 16 } })
  await until(() => told.length === 1)
  assert.equal(cost(), 2)
  worker.postMessage('end')
  await done
  assert.equal(cost(), 16)
  mill.close()
})

test('no id comes twice from eight workers, whatever the order', async () => {
  const config = `sqlite:${scratch()}/ids.db`
  for (const options of [{ order: 'process' }, { order: 'thread' }]) {
    const name = `union-${options.order}`
    const workers = Array.from({ length: 8 }, () => begin('mix', { config, name, options, count: 20_000 }))
    const lists = (await Promise.all(workers.map(({ done }) => done))).map(([ids]) => ids)
    assert.equal(new Set(lists.flatMap((ids) => [...ids])).size, 8 * 20_000)
    for (const ids of lists) for (let i = 1; i < ids.length; i++) assert.ok(ids[i] > ids[i - 1])
  }
})

test('a revocation is seen in the middle of a block by a loop that runs at full speed', async () => {
  // The word is raised by another thread while the optimised loop reads it by plain loads.
  const block = 2 ** 20
  /** Turns the day while a worker loops, and says whether the worker's last block of that day was used up. */
  const usedUp = async () => {
    const config = `${fresh()}?clock=manual`
    const flag = new Int32Array(new SharedArrayBuffer(4))
    const { done } = begin('spin', { config, flag, block })
    await until(() => Atomics.load(flag, 0) === 1)
    const mill = open(config)
    mill.setClock(Date.UTC(2027, 0, 2))
    const [{ before, after, last }] = await done
    mill.close()
    assert.deepEqual([before, after], ['20270101', '20270102'])
    // Blocks begin at 16 and double.
    const end = last + 16
    return end % block === 0 || Math.log2(end) % 1 === 0
  }
  // A block lasts some 10 ms: where the thread that raises the word runs later than that, the loop takes its
  // next block from the new day. A loop that never reads the word uses its block up each time.
  let attempts = 1
  while (await usedUp()) assert.ok(attempts++ < 40, 'each block was used up')
})

test('a worker that waits can be terminated at once, and nothing is held', async () => {
  const hole = await blackHole()
  const config = `mysql://a@127.0.0.1:${hole.port}/ids?connect_timeout=20s`
  for (const how of ['next', 'fill', 'nextAsync', 'keys']) {
    const { worker, told } = begin('wait', { config, how })
    await until(() => told.length === 1)
    const began = performance.now()
    await worker.terminate()
    assert.ok(performance.now() - began < 10_000, `${how}: ${performance.now() - began} ms`)
  }
  hole.end()
  const mill = open('memory:')
  assert.equal(mill.segment('x').next(), 1n)
  mill.close()
})

test('workers are ended at random while they take, and the others go on', async () => {
  const config = `sqlite:${scratch()}/ids.db`
  const mill = open(config)
  const ids = mill.segment('ends', { block: 8 })
  let last = 0n
  for (let round = 0; round < 20; round++) {
    const { worker } = begin('forever', { config, name: 'ends', options: { block: 8 } })
    await new Promise((up) => worker.once('message', up))
    for (let i = 0; i < 2000; i++) {
      const id = ids.next()
      assert.ok(id > last)
      last = id
    }
    await worker.terminate()
  }
  mill.close()
})

test('close while workers take: each gets ids of its own, then CLOSED or its own mill goes on', async () => {
  const config = `sqlite:${scratch()}/ids.db`
  const mill = open(config)
  const flag = new Int32Array(new SharedArrayBuffer(8))
  const workers = Array.from({ length: 4 }, () => begin('until', { config, flag }))
  await until(() => Atomics.load(flag, 0) === 4)
  const ids = mill.segment('until')
  const mine = ids.take(100)
  mill.close()
  assert.throws(() => ids.next(), { code: 'CLOSED' })
  Atomics.store(flag, 1, 1)
  const lists = (await Promise.all(workers.map(({ done }) => done))).map(([got]) => got)
  const all = [...mine, ...lists.flatMap((got) => [...got])]
  assert.equal(new Set(all).size, all.length)
})

test('two copies of the module in one thread, as test runners make them, keep one order', () => {
  const require = createRequire(import.meta.url)
  const copies = [0, 1].map(() => {
    for (const file of Object.keys(require.cache)) if (file.includes('dist')) delete require.cache[file]
    return require('keymill')
  })
  assert.notEqual(copies[0].Mill, copies[1].Mill)
  const config = fresh()
  const sources = copies.map((copy) => copy.open(config).segment('copies', { block: 10 }))
  let last = 0n
  for (let i = 0; i < 1000; i++) {
    const id = sources[i % 3 ? 1 : 0].next()
    assert.ok(id > last)
    last = id
  }
})
