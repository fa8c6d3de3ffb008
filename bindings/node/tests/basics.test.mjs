import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { test } from 'node:test'
import { inspect } from 'node:util'
import { KeymillError, open, openAsync, storeOf, version } from 'keymill'
import * as esm from 'keymill'
import { fresh, scratch } from './support.mjs'

const require = createRequire(import.meta.url)

test('both module systems are one implementation', () => {
  const cjs = require('keymill')
  for (const name of Object.keys(esm)) assert.equal(esm[name], cjs[name], name)
  assert.deepEqual(Object.keys(esm).sort(), Object.keys(cjs).sort())
})

test('the five lines of the surface print ids', async () => {
  const mill = open(`sqlite:${scratch()}/ids.db`)
  const orders = mill.segment('orders', { step: 1000, deadline: '60s' })
  assert.equal(orders.next(), 1n)
  assert.equal(await orders.nextAsync(), 2n)
  assert.deepEqual(orders.take(5), [3n, 4n, 5n, 6n, 7n])
  assert.deepEqual(orders.fill(new BigUint64Array(3)), BigUint64Array.of(8n, 9n, 10n))
  assert.deepEqual(orders.fill(new BigInt64Array(2)), BigInt64Array.of(11n, 12n))
  assert.equal(orders.tryNext(), 13n)
  assert.deepEqual(await orders.takeAsync(2), [14n, 15n])
  mill.close()
})

test('every third number comes by every verb', async () => {
  const mill = open('memory:')
  for (const order of ['process', 'thread']) {
    const orders = mill.segment(`orders ${order}`, { scheme: 'tiny_id_info', delta: 3, remainder: 2, order })
    const ids = []
    for (let i = 0; i < 300; i++) ids.push(orders.next())
    ids.push(await orders.nextAsync(), ...orders.take(1500), orders.tryNext(), ...(await orders.takeAsync(300)))
    ids.push(...orders.fill(new BigUint64Array(1000)))
    const mine = orders.handle()
    for (let i = 0; i < 300; i++) ids.push(mine.next())
    for (const id of orders) if (ids.push(id) > 4000) break
    for await (const id of orders) if (ids.push(id) > 4300) break
    assert.deepEqual(ids, ids.map((_, n) => BigInt(2 + 3 * n)), order)
    assert.throws(() => orders.parse(3n), /divided by 3 it leaves 0/)
  }
  mill.close()
})

test('an id is a bigint whatever the block, and rises over many blocks', () => {
  const mill = open('memory:')
  const ids = mill.segment('many', { block: 7 })
  let last = 0n
  for (let i = 0; i < 10_000; i++) {
    const id = ids.next()
    assert.ok(id > last)
    last = id
  }
  mill.close()
})

test('ids beyond 2^53 are exact', () => {
  const mill = open('memory:')
  const start = 2n ** 62n + 1n
  const big = mill.segment('big', { start, block: 10, min_step: 1000 })
  assert.deepEqual([big.next(), big.next(), ...big.take(3), ...big.fill(new BigUint64Array(2))], [0n, 1n, 2n, 3n, 4n, 5n, 6n].map((i) => start + i))
  mill.close()
})

test('a program that takes little loses nothing at close', () => {
  const config = `sqlite:${scratch()}/little.db`
  let first = 1
  for (let run = 0; run < 3; run++) {
    const mill = open(config)
    const ids = mill.segment('orders', { deadline: '60s' })
    const no = mill.serial('t', 'little', { number: '000000', date: '', deadline: '60s' })
    for (let i = first; i < first + 5; i++) {
      assert.equal(ids.next(), BigInt(i))
      assert.equal(no.next(), String(i).padStart(6, '0'))
    }
    first += 5
    mill.close()
  }
})

test('serial numbers are texts, singly, in batches and by handle', async () => {
  const mill = open('memory:?clock=manual')
  mill.setClock(Date.UTC(2026, 10, 20, 12))
  const no = mill.serial('cust_info', 'custid', { date: 'yyyyMMdd', number: '000000', step: 500, zone: 'UTC' })
  assert.equal(no.next(), '20261120000001')
  assert.deepEqual(no.take(3), ['20261120000002', '20261120000003', '20261120000004'])
  assert.equal(no.tryNext(), '20261120000005')
  assert.equal(await no.nextAsync(), '20261120000006')
  assert.deepEqual(await no.takeAsync(2), ['20261120000007', '20261120000008'])
  assert.deepEqual(no.parse('20261120000042'), { date: '20261120', number: 42n })
  assert.match(no.handle().next(), /^20261120\d{6}$/)
  assert.equal(mill.source('serial:cust_info/custid?date=yyyyMMdd&number=000000&step=500&zone=UTC').label, no.label)
  mill.close()
})

test('a block dies with its day', async () => {
  const mill = open('memory:?clock=manual')
  mill.setClock(Date.UTC(2026, 10, 20, 23, 59, 59))
  const no = mill.serial('t', 'day', { number: '0000', zone: 'UTC' })
  assert.equal(no.next(), '202611200001')
  mill.setClock(Date.UTC(2026, 10, 21, 0, 0, 1))
  assert.equal(no.next(), '202611210001')
  mill.close()
})

test('a snowflake is taken apart again', () => {
  const mill = open('memory:')
  const tx = mill.snowflake('tx', { worker: 5 })
  const before = Date.now()
  const parts = tx.parse(tx.next())
  assert.equal(parts.worker, 5)
  assert.equal(typeof parts.sequence, 'number')
  assert.ok(Math.abs(parts.time.getTime() - before) < 5000)
  const ids = [...tx.take(5000), tx.next()]
  assert.equal(new Set(ids).size, 5001)
  mill.close()
})

test('ids of layout js53 may be numbers, others may not', () => {
  const mill = open('memory:')
  const ids = mill.snowflake('web', { worker: 1, layout: 'js53', as: 'number' })
  const id = ids.next()
  assert.ok(Number.isSafeInteger(id) && id > 0)
  assert.ok(ids.take(10).every(Number.isSafeInteger))
  assert.equal(ids.parse(id).worker, 1)
  assert.throws(() => mill.segment('orders', { as: 'number' }), { code: 'INVALID_ARGUMENT', message: /js53/ })
  mill.close()
})

test('a source prints as its label', () => {
  const mill = open('memory:')
  const orders = mill.segment('orders')
  assert.equal(`${orders}`, 'segment:orders')
  assert.equal(inspect(orders), 'Source segment:orders')
  assert.equal(inspect(mill.serial('t', 'c')), 'Serial serial:t/c')
  mill.close()
})

test('init makes the tables of a server, and says how', () => {
  const mill = open(`sqlite:${scratch()}/init.db`)
  assert.match(mill.init('segment:orders').join(), /CREATE TABLE IF NOT EXISTS "keymill_segment"/)
  assert.match(mill.init('serial:cust_info/custid').join(), /key_producer/)
  assert.throws(() => mill.init('segmnt:orders'), { code: 'INVALID_CONFIG', message: /segmnt/ })
  assert.throws(() => mill.init(5), { code: 'INVALID_ARGUMENT' })
  mill.close()
  assert.throws(() => mill.init(), { code: 'CLOSED' })
})

test('loops run over ids, sync and async', async () => {
  const mill = open('memory:')
  const ids = mill.segment('loop')
  const seen = []
  for (const id of ids) if (seen.push(id) === 3) break
  for await (const id of ids) if (seen.push(id) === 6) break
  assert.deepEqual(seen, [1n, 2n, 3n, 4n, 5n, 6n])
  mill.close()
})

test('a handle counts through numbers of its own', () => {
  const mill = open('memory:')
  const ids = mill.segment('own', { block: 100 })
  const mine = ids.handle()
  const seen = new Set()
  let last = 0n
  for (let i = 0; i < 1000; i++) {
    const id = mine.next()
    assert.ok(id > last)
    last = id
    seen.add(id).add(ids.next())
  }
  assert.equal(seen.size, 2000)
  mill.close()
})

test('any option passes through, encoded, and a source says what it is', () => {
  const mill = open('memory:')
  const a = mill.segment('a?b/c%', { step: 10n, deadline: '1s' })
  assert.match(a.settings.step, /multiples of 10$/)
  assert.equal(mill.source('segment:a%3Fb%2Fc%25', { step: 10, deadline: '1s' }).label, a.label)
  assert.equal(mill.source('segment:x?step=5', { deadline: '1s', ttl: undefined }).settings.step.match(/\d+$/)[0], '5')
  mill.close()
})

test('stats and metrics tell what happened', () => {
  const mill = open('memory:')
  const ids = mill.segment('told')
  ids.take(10)
  const stats = ids.stats()
  assert.equal(stats.source, 'segment:told')
  assert.equal(stats.issued, 10)
  assert.ok(stats.reserved >= 10)
  assert.match(mill.metrics(), /keymill_issued_total\{source="segment:told"\} 10/)
  const leased = mill.snowflake('told')
  leased.next()
  assert.ok(leased.stats().leaseAgeMs < 60_000 && stats.leaseAgeMs === undefined)
  mill.close()
})

test('events are read once and can be read after a close', () => {
  const mill = open(fresh())
  mill.segment('orders').take(10)
  mill.close()
  const events = mill.events()
  assert.ok(events.every((line) => typeof line === 'string' && line.length > 0), String(events))
  assert.deepEqual(mill.events(), [])
})

test('asking twice for a source gives one rising order', () => {
  const config = fresh()
  const mill = open(config)
  const again = open(config)
  const ids = [mill.segment('s').next(), again.segment('s').next(), mill.segment('s').next()]
  assert.deepEqual(ids, [1n, 2n, 3n])
  mill.close()
  assert.equal(again.segment('s').next(), 4n)
  again.close()
})

test('a mill is closed by dispose, and closing twice is nothing', async () => {
  const mill = open('memory:')
  mill[Symbol.dispose]()
  mill.close()
  assert.equal(mill.closed, true)
  const other = await openAsync('memory:')
  await other[Symbol.asyncDispose]()
  assert.throws(() => other.segment('x'), { code: 'CLOSED' })
})

test('an error is an Error with a code', () => {
  const error = new KeymillError('NOT_READY', 'later', 5)
  assert.ok(error instanceof Error)
  assert.deepEqual([error.name, error.code, error.message, error.retryAfterMs], ['KeymillError', 'NOT_READY', 'later', 5])
  assert.match(version, /^\d+\.\d+\.\d+$/)
})

test('the application\'s own database, with objects among its properties', () => {
  assert.equal(
    storeOf('postgres://app:horse@db/shop', { ssl: { ca: '/etc/ca.pem', rejectUnauthorized: true }, connectionTimeoutMillis: 1500, max: undefined }),
    'postgres://app:horse@db:5432/shop?tls=verify&ca=/etc/ca.pem&connect_timeout=1500ms',
  )
  assert.equal(storeOf('postgres://app:horse@db/shop', { ssl: { rejectUnauthorized: false } }), 'postgres://app:horse@db:5432/shop?tls=require')
  // An object asks for encryption and a look at the certificate, whatever is not in it.
  for (const ssl of [{}, { rejectUnauthorized: undefined }, { rejectUnauthorized: null }]) {
    assert.equal(storeOf('postgres://app:horse@db/shop?sslmode=disable', { ssl }), 'postgres://app:horse@db:5432/shop?tls=verify')
    assert.equal(storeOf('mysql2://app:horse@db/shop', { ssl }), 'mysql://app:horse@db:3306/shop?tls=verify')
  }
  // The drivers verify unless it is `false` itself.
  for (const rejectUnauthorized of ['false', 0, 'no', 'off']) {
    assert.equal(storeOf('postgres://app:horse@db/shop', { ssl: { rejectUnauthorized } }), 'postgres://app:horse@db:5432/shop?tls=verify')
  }
  const refused = (url, properties, code, says) =>
    assert.throws(() => storeOf(url, properties), (e) => e instanceof KeymillError && e.code === code && says.test(e.message) && !/horse/.test(e.message))
  refused('mysql://app@db/shop', { password: ['horse'] }, 'INVALID_CONFIG', /`password` of a MySQL client library is no text but an object \(Array\)/)
  refused('mysql://app@db/shop', { password: () => 'horse' }, 'INVALID_CONFIG', /`password` .* \(function\)/)
  refused('mysql://app:horse@db/shop', { hostFlavour: 'horse' }, 'INVALID_CONFIG', /`hostFlavour`/)
  // As TypeORM's and knex' settings have them.
  assert.equal(
    storeOf('mysql://app:horse@db/shop', { type: 'mysql', entities: ['x.js'], typeCast: () => 1, pool: { min: 0, afterCreate: () => 1 }, flavour: 'horse' }),
    'mysql://app:horse@db:3306/shop?tls=prefer&ignored=type,entities,typeCast,pool.min,pool.afterCreate,flavour',
  )
  refused(undefined, undefined, 'INVALID_ARGUMENT', /DATABASE_URL/)
  refused('jdbc:h2:mem:test', undefined, 'INVALID_CONFIG', /sqlite:keymill\.db/)
})

test('a local serial has the zone that the program set after it opened its mill', () => {
  const before = process.env.TZ
  const mill = open(fresh())
  try {
    for (const zone of ['UTC', 'Pacific/Kiritimati']) {
      process.env.TZ = zone
      assert.equal(mill.serial('zone', zone).stats().zone, zone)
    }
    process.env.TZ = 'Asia/Shangai'
    assert.throws(() => mill.serial('zone', 'none'), { code: 'INVALID_CONFIG', message: /`Asia\/Shangai` is no time zone/ })
  } finally {
    if (before === undefined) delete process.env.TZ
    else process.env.TZ = before
    mill.close()
  }
})
