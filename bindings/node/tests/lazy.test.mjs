import assert from 'node:assert/strict'
import { inspect } from 'node:util'
import { test, afterEach } from 'node:test'
import { Worker } from 'node:worker_threads'
import { gene, lazy, open, shared, use } from 'keymill'
import { fresh, run, scratch, until } from './support.mjs'

const declared = lazy('segment:orders', { deadline: '60s' })
afterEach(() => use(null))

const is = (code, message) => (error) => {
  assert.equal(error.code, code)
  assert.match(error.message, message)
  return true
}

test('a source that was declared before the mill finds it at its first id', () => {
  const mill = open('memory:')
  use(mill)
  assert.equal(shared(), mill)
  assert.deepEqual([declared(), declared.next()], [1n, 2n])
  assert.equal(mill.segment('orders', { deadline: '60s' }).next(), 3n, 'they are one source')
  mill.close()
})

test('every verb is the source’s', async () => {
  const mill = open('memory:')
  use(mill)
  const orders = lazy('segment:verbs')
  assert.deepEqual([orders(), await orders.nextAsync(), orders.tryNext()], [1n, 2n, 3n])
  assert.deepEqual([...orders.take(2), ...(await orders.takeAsync(2))], [4n, 5n, 6n, 7n])
  assert.deepEqual(orders.fill(new BigUint64Array(2)), new BigUint64Array([8n, 9n]))
  assert.deepEqual([orders.nextText(), await orders.nextTextAsync(), ...orders.takeText(1), ...(await orders.takeTextAsync(1)), orders.textOf(5)], ['10', '11', '12', '13', '5'])
  for (const id of orders) {
    assert.equal(id, 14n)
    break
  }
  for await (const id of orders) {
    assert.equal(id, 15n)
    break
  }
  assert.deepEqual(orders.parse(5n), { number: 5n })
  assert.equal(orders.stats().source, 'segment:verbs')
  assert.deepEqual(orders.settings, mill.segment('verbs').settings)
  assert.equal(orders.source().next(), 16n)
  assert.ok(orders.handle().next() > 16n)
  assert.equal(orders.spec, 'segment:verbs')
  assert.equal(inspect(orders), 'lazy segment:verbs')
  const serial = lazy('serial:t/c', { date: "'C'", number: '000' })
  assert.deepEqual([serial(), serial.nextText(), ...serial.take(1)], ['C001', 'C002', 'C003'])
  assert.throws(() => serial.fill(new BigUint64Array(1)), is('INVALID_ARGUMENT', /hands out texts/))
  mill.close()
})

test('ids are given as text or as numbers where that is asked for', async () => {
  use(open('memory:'))
  const texts = lazy('segment:texts', { as: 'string' })
  assert.deepEqual([texts(), await texts.nextAsync(), texts.tryNext(), ...texts.take(1), ...(await texts.takeAsync(1))], ['1', '2', '3', '4', '5'])
  assert.equal(lazy('segment:forms', { prefix: 'ord_', as: 'string' })(), 'ord_1')
  assert.equal(typeof lazy('snowflake:web', { layout: 'js53', worker: 5, as: 'number' })(), 'number')
  assert.equal(typeof lazy('business:sales', { as: 'string' })('buyer-42'), 'string')
  assert.throws(lazy('segment:orders', { as: 'number' }), is('INVALID_ARGUMENT', /segment:orders: ids of .* do not fit a number/))
  assert.throws(() => lazy('segment:orders', { as: 'text' }), is('INVALID_ARGUMENT', /'bigint', 'number' or 'string'/))
  for (const spec of [undefined, null, 5, {}]) assert.throws(() => lazy(spec), is('INVALID_ARGUMENT', /a source must be a string/))
  for (const mill of [undefined, 'memory:', {}]) assert.throws(() => use(mill), is('INVALID_ARGUMENT', /use takes a mill/))
  shared().close()
})

test('a framework calls it with what it likes, and business ids need a key', async () => {
  const mill = open('memory:')
  use(mill)
  assert.deepEqual([{}].map(declared), [1n])
  const sales = lazy('business:order')
  const ids = [sales('buyer-42'), sales.next('buyer-42'), ...sales.take('buyer-42', 2), await sales.nextAsync('buyer-42'), ...(await sales.takeAsync('buyer-42', 2)), sales.tryNext('buyer-42')]
  assert.equal(new Set(ids).size, 8)
  for (const id of [...ids, sales.nextText('buyer-42'), await sales.nextTextAsync('buyer-42'), ...sales.takeText('buyer-42', 1)]) assert.equal(sales.parse(id).gene, gene('buyer-42'))
  assert.throws(sales, is('INVALID_ARGUMENT', /key/))
  await assert.rejects(sales.nextAsync(), is('INVALID_ARGUMENT', /key/))
  mill.close()
})

test('ids come from the mill that was shared last, and never from a closed one', async () => {
  const first = open('memory:')
  const second = open('memory:')
  use(first)
  declared.take(200)
  for (let i = 0; i < 200; i++) declared()
  use(second)
  assert.equal(declared(), 1n)
  use(first)
  assert.equal(declared(), 401n, 'the first is still open')
  first.close()
  const told = /the shared mill was closed; share an open one with use\(mill\)/
  for (const verb of [declared, declared.tryNext, () => declared.take(1), () => declared.fill(new BigUint64Array(1)), lazy('segment:new')]) {
    assert.throws(verb, is('CLOSED', told))
  }
  await assert.rejects(declared.nextAsync(), is('CLOSED', told))
  await assert.rejects(declared.takeAsync(1), is('CLOSED', told))
  use(second)
  assert.equal(declared(), 2n)
  second.close()
})

test('promises that wait go on at the mill that took the place of a closed one', async () => {
  const silent = open('mysql://app:hush@127.0.0.1:1/ids?connect_timeout=1s')
  use(silent)
  const waiting = [declared.nextAsync(), declared.takeAsync(2)]
  const mill = open('memory:')
  use(mill)
  silent.close()
  assert.deepEqual(new Set((await Promise.all(waiting)).flat()), new Set([1n, 2n, 3n]))
  mill.close()
})

/** What a program prints in a process of its own, where no mill was shared. */
async function printed(task, KEYMILL_CONFIG) {
  const { code, out, err } = await run('lazy.mjs', [task], { env: { KEYMILL_CONFIG } }).done
  assert.equal(code, 0, err)
  return out
}

test('workers open one default mill, in memory too', async () => {
  for (const config of [`sqlite:${scratch()}/ids.db`, 'memory:']) assert.equal(await printed('crowd', config), '1700 of 1700\n')
})

test('the default mill serves again after a shared one and after its close', async () => {
  const told = 'segment:orders: the default mill was closed; share an open one with use(mill), or use(null) for the default mill'
  assert.equal(await printed('default', `sqlite:${scratch()}/ids.db`), `${told}\n1 1 2 3\n`)
})

test('a default mill that cannot be opened is told with the spec and without a password', async () => {
  const told = await printed('first', 'mysql://app:hush@db:port/ids')
  assert.ok(told.startsWith('INVALID_CONFIG segment:orders: no mill is shared, and the default mill (KEYMILL_CONFIG=…) cannot be opened: '), told)
  assert.ok(!told.includes('hush'), told)
  use(open('memory:'))
  assert.throws(lazy('segment:orders', { stpe: 5 }), is('INVALID_CONFIG', /^segment:orders\?stpe=5: .*`stpe`/))
  shared().close()
})

/** Begins `task` of `programs/lazy.mjs` in a worker; `told` are its messages. */
function begin(task) {
  const worker = new Worker(new URL('programs/lazy.mjs', import.meta.url), { workerData: { task } })
  const told = []
  let failure
  worker.on('message', (message) => told.push(message)).on('error', (error) => (failure = error))
  const next = async () => {
    const before = told.length
    worker.postMessage('next')
    await until(() => {
      if (failure) throw failure
      return told.length > before
    })
    return told.at(-1)
  }
  return { worker, next }
}

/** They are the first ids of one mill: where a second thread takes one, the first one's block of 16 ends. */
function begins(first, second) {
  assert.equal(first, 1n)
  assert.ok(second === 2n || second === 17n, String(second))
}

test('workers follow the mill that the main thread shares, replaces and closes', async () => {
  const [first, second] = [open('memory:'), open(fresh())]
  use(first)
  const { worker, next } = begin('follow')
  const ids = [declared()]
  for (let i = 0; i < 300; i++) ids.push(declared(), await next())
  assert.equal(new Set(ids).size, 601, 'one mill: its ids come once')
  assert.deepEqual(ids, [...ids].sort((a, b) => Number(a - b)))
  use(second)
  begins(declared(), await next())
  const other = open('memory:')
  second.close()
  assert.match(await next(), /^CLOSED segment:orders\?deadline=60s: the shared mill was closed/)
  use(other)
  const last = [await next(), declared()]
  begins(...last)
  await worker.terminate()
  assert.ok(declared() > last[1], 'a guest closes nothing')
  other.close()
})

test('a mill that other holders keep open is closed for those who got it by sharing', async () => {
  const config = fresh()
  const [mill, holder] = [open(config), open(config)]
  use(mill)
  const { worker, next } = begin('follow')
  for (let i = 0; i < 200; i++) await next()
  mill.close()
  assert.match(await next(), /^CLOSED/)
  assert.throws(declared, is('CLOSED', /the shared mill was closed/))
  assert.ok(holder.segment('orders', { deadline: '60s' }).next() > 200n)
  await worker.terminate()
  holder.close()
})

test('a mill that a worker shared goes with its worker', async () => {
  const { worker, next } = begin('share')
  begins(await next(), declared())
  await worker.terminate()
  await until(() => {
    try {
      declared()
      return false
    } catch (error) {
      return error.code === 'CLOSED'
    }
  })
})

/** What a worker with these variables prints; `code` has `lazy`, `open` and `OrderNumbers`. */
function inWorker(env, code) {
  const begin = `const { lazy, open, openAsync, OrderNumbers } = require('keymill'); const { parentPort } = require('node:worker_threads')`
  const worker = new Worker(`${begin}; (async () => ${code})().catch((e) => e.code + ' ' + e.message).then((told) => parentPort.postMessage(told))`, { eval: true, env })
  return new Promise((end, fail) => worker.on('message', end).on('error', fail))
}

test('a worker has an environment of its own, which names its mill, its password and its keys', async () => {
  const config = fresh()
  const mill = open(config)
  const orders = mill.segment('orders', { deadline: '60s' })
  const last = orders.take(100)[99]
  const env = { ...process.env, KEYMILL_CONFIG: config, KEYMILL_ORDER_KEYS: 'seal_with = 5' }
  for (const ids of [`lazy('segment:orders', { deadline: '60s' })()`, `open().segment('orders', { deadline: '60s' }).next()`, `(await openAsync()).segment('orders', { deadline: '60s' }).next()`]) {
    assert.ok((await inWorker(env, ids)) > last, ids)
    const assigned = `(process.env.KEYMILL_CONFIG = '${config}', ${ids})`
    assert.ok((await inWorker({ ...env, KEYMILL_CONFIG: 'memory:' }, assigned)) > last, assigned)
    assert.match(await inWorker({ ...env, KEYMILL_CONFIG: '' }, ids), /^INVALID_CONFIG .*KEYMILL_CONFIG is empty/)
    process.env.KEYMILL_CONFIG = config
    assert.ok((await inWorker({}, ids)) > last, `${ids} without a variable of its own`)
    delete process.env.KEYMILL_CONFIG
  }
  assert.match(await inWorker({ ...env, KEYMILL_PASSWORD: '' }, `open('mysql://app@127.0.0.1/ids')`), /^INVALID_CONFIG KEYMILL_PASSWORD is empty/)
  assert.match(await inWorker(env, `OrderNumbers.fromEnv()`), /^INVALID_CONFIG KEYMILL_ORDER_KEYS: /)
  mill.close()
})
