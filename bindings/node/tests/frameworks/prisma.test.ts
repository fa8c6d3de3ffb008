import assert from 'node:assert/strict'
import { before, after, test } from 'node:test'
import { open, storeOf, use } from 'keymill'
import { keymill } from 'keymill/prisma'
// The clients differ in their database alone.
import type { PrismaClient } from './prisma-sqlite/client.js'
import { blackHole, children, database, file, kind, loopGoesOn, rejection } from './support.js'

const provider = kind === 'postgres' ? 'postgresql' : kind
const { PrismaClient: Client } = (await import(`./prisma-${provider}/client.js`)) as typeof import('./prisma-sqlite/client.js')
const shop = (process.env.KEYMILL_TEST_SHOP ??= file('shop.db'))
async function adapter(): Promise<any> {
  if (kind === 'sqlite') return new (await import('@prisma/adapter-libsql')).PrismaLibSql({ url: `file:${shop}` })
  if (kind === 'mysql') return new (await import('@prisma/adapter-mariadb')).PrismaMariaDb(database.replace(/^mysql:/, 'mariadb:'))
  return new (await import('@prisma/adapter-pg')).PrismaPg({ connectionString: database })
}
const models = {
  Order: { id: 'segment:prisma-orders' },
  Line: { id: 'segment:{table}', no: 'serial:lines/no?number=000000' },
  Buyer: { id: 'segment:buyers?text=base62&prefix=buy_' },
}
const store = kind === 'sqlite' ? `sqlite:${shop}.keymill` : storeOf(database)
// Another process of the same shop: it creates, and prints its ids.
if (process.env.KEYMILL_TEST_CHILD !== undefined) {
  const prisma = new Client({ adapter: await adapter() }).$extends(keymill(models, { store }))
  const ids: bigint[] = []
  for (let i = 0; i < 20; i++) {
    const { id, lines } = await prisma.order.create({ data: { lines: { create: [{}, {}] } }, include: { lines: true } })
    ids.push(id, ...lines.map((line) => line.id + 5_000_000_000n))
  }
  await prisma.$disconnect()
  console.log(ids.join(' '))
  process.exit(0)
}

let plain: PrismaClient
before(async () => {
  plain = new Client({ adapter: await adapter() })
  const long = 'VARCHAR(40)'
  for (const table of ['order_lines', 'orders', 'buyers']) await plain.$executeRawUnsafe(`DROP TABLE IF EXISTS ${table}`)
  await plain.$executeRawUnsafe(`CREATE TABLE buyers (id ${long} NOT NULL PRIMARY KEY, name ${long} NOT NULL UNIQUE)`)
  const column = (name: string) => (kind === 'mysql' ? `\`${name}\`` : `"${name}"`)
  await plain.$executeRawUnsafe(`CREATE TABLE orders (id BIGINT NOT NULL PRIMARY KEY, mail ${long} UNIQUE, total INT NOT NULL DEFAULT 0, ${column('buyerId')} ${long})`)
  await plain.$executeRawUnsafe(`CREATE TABLE order_lines (id BIGINT NOT NULL PRIMARY KEY, ${column('orderId')} BIGINT NOT NULL, no ${long} NOT NULL)`)
  const mill = open(store)
  mill.init('segment:prisma-orders', 'serial:lines/no?number=000000')
  mill.close()
})
after(() => plain?.$disconnect())

async function extended() {
  return plain.$extends(keymill(models, { store }))
}

test('create, createMany, createManyAndReturn and upsert set ids', async () => {
  const prisma = await extended()
  const order = await prisma.order.create({ data: { mail: 'a' } })
  assert.equal(typeof order.id, 'bigint')
  assert.equal((await prisma.order.createMany({ data: [{ mail: 'b' }, { mail: 'c' }] })).count, 2)
  if (kind !== 'mysql') assert.equal((await prisma.order.createManyAndReturn({ data: [{ mail: 'd' }, { mail: 'e' }] })).length, 2)
  const first = await prisma.order.upsert({ where: { mail: 'f' }, create: { mail: 'f' }, update: { total: 1 } })
  const second = await prisma.order.upsert({ where: { mail: 'f' }, create: { mail: 'f' }, update: { total: 1 } })
  assert.deepEqual([second.id, second.total], [first.id, 1])
  const buyer = await prisma.buyer.create({ data: { name: 'ann' } })
  assert.match(buyer.id, /^buy_[0-9A-Za-z]{11}$/)
  const ids = (await prisma.order.findMany()).map(({ id }) => id)
  assert.equal(new Set(ids).size, kind === 'mysql' ? 4 : 6)
})

test('nested rows have ids, at any depth and by each verb', async () => {
  const prisma = await extended()
  const data = { mail: 'n', buyer: { create: { name: 'bob' } }, lines: { create: [{}, {}], createMany: { data: [{}] } } }
  const made = await prisma.order.create({ data, include: { lines: true, buyer: true } })
  assert.equal(made.lines.length, 3)
  assert.ok(made.lines.every(({ id, no }) => id > 0n && /^\d{14}$/.test(no)))
  assert.deepEqual(data, { mail: 'n', buyer: { create: { name: 'bob' } }, lines: { create: [{}, {}], createMany: { data: [{}] } } }, 'the data is the program’s')
  const deep = await prisma.buyer.create({ data: { name: 'cid', orders: { create: [{ mail: 'o', lines: { create: {} } }, { mail: 'p' }] } }, include: { orders: { include: { lines: true } } } })
  assert.equal(deep.orders.flatMap(({ lines }) => lines).length, 1)
  const changed = await prisma.order.update({
    where: { id: made.id },
    data: {
      buyer: { connectOrCreate: { where: { name: 'dan' }, create: { name: 'dan' } } },
      lines: { create: {}, upsert: { where: { id: 0n }, create: {}, update: {} }, update: { where: { id: made.lines[0].id }, data: { no: 'kept' } } },
    },
    include: { lines: true, buyer: true },
  })
  assert.equal(changed.lines.length, 5)
  assert.equal(changed.buyer?.name, 'dan')
  const within = await prisma.buyer.update({ where: { name: 'cid' }, data: { orders: { update: { where: { mail: 'o' }, data: { lines: { create: [{}] } } } } }, include: { orders: { include: { lines: true } } } })
  assert.equal(within.orders.flatMap(({ lines }) => lines).length, 2)
  const upserted = await prisma.buyer.upsert({ where: { name: 'eve' }, create: { name: 'eve', orders: { connectOrCreate: { where: { mail: 'q' }, create: { mail: 'q', lines: { create: {} } } } } }, update: {}, include: { orders: { include: { lines: true } } } })
  assert.equal(upserted.orders[0].lines.length, 1)
})

// SQLite itself answers `busy` where two processes write.
test('two processes and this one have no id in common', { skip: kind === 'sqlite' && 'its adapter does not wait for another writer' }, async () => {
  const others = children(2, import.meta.url)
  const prisma = await extended()
  const own: string[] = []
  for (let i = 0; i < 20; i++) own.push(String((await prisma.order.create({ data: {} })).id))
  const ids = [...own, ...(await others)]
  assert.equal(ids.length, 140)
  assert.equal(new Set(ids).size, 140)
})

test('an id that is set is kept', async () => {
  const prisma = await extended()
  const { id } = await prisma.order.create({ data: { id: 4_000_000_000_000n, lines: { create: { id: 4_000_000_000_001n } } } })
  assert.equal(id, 4_000_000_000_000n)
  await prisma.line.deleteMany({ where: { orderId: id } })
  await prisma.order.delete({ where: { id } })
})

test('transactions of both kinds', async () => {
  const prisma = await extended()
  const both = await prisma.$transaction([prisma.order.create({ data: {} }), prisma.order.create({ data: { lines: { create: {} } } })])
  assert.notEqual(both[0].id, both[1].id)
  // Its first id asks the table for its keys, on the connection of the transaction.
  const within = await (await extended()).$transaction(async (tx) => (await tx.order.create({ data: {} })).id)
  assert.equal(typeof within, 'bigint')
})

test('without the extension the database refuses a row', async () => {
  await rejection(() => plain.order.create({ data: { mail: 'refused' } }))
  assert.equal(await plain.order.count({ where: { mail: 'refused' } }), 0)
})

test('what cannot be given is refused at the start, with the model and the field', () => {
  const told: [object, RegExp][] = [
    [{ Oder: { id: 'segment:orders' } }, /^the schema has no model Oder; it has Order, Line/],
    [{ Order: { no: 'segment:orders' } }, /^Order\.no: the model has no such field; it has id, mail/],
    [{ Order: { lines: 'segment:orders' } }, /^Order\.lines is a Line; ids are a BigInt, an Int or a String/],
    [{ Order: { id: 'segment:orders?stpe=5' } }, /^Order\.id: .*`stpe`/],
    [{ Order: { id: 'serial:a/b?number=000' } }, /^Order\.id: `serial:a\/b\?number=000` gives texts, and the field is a bigint/],
    [{ Order: { id: 'business:orders' } }, /^Order\.id: `business:orders` gives ids for a key/],
    [{ Numbered: { id: 'segment:orders' } }, /^Numbered\.id has @default\(autoincrement\(\)\), by which the database numbers rows .*; write @default\(dbgenerated\(\)\)/],
  ]
  if (kind === 'sqlite') {
    for (const model of ['Short', 'Block']) told.push([{ [model]: { id: 'segment:orders' } }, /^\w+\.id is an Int, and SQLite numbers an INTEGER PRIMARY KEY by itself .*; write BigInt/])
  }
  for (const [given, message] of told) assert.throws(() => plain.$extends(keymill(given as never, { store })), { name: 'KeymillError', message })
  assert.throws(() => keymill({})({ $extends() {} }), { code: 'INVALID_CONFIG', message: /^keymill\/prisma cannot see the models of this client/ })
})

test('keys that a table has and the source did not give are refused', async () => {
  await plain.order.create({ data: { id: 77_000_000n, mail: 'before' } })
  const other = plain.$extends(keymill({ Order: { id: 'segment:untouched' } }, { store }))
  const error = await rejection(() => other.order.create({ data: {} }))
  assert.match(error.message, /^Order\.id: segment:untouched goes on at 1, and the table orders has keys up to 77000000, /)
  await plain.order.delete({ where: { id: 77_000_000n } })
})

test('a store that does not answer holds up the call and not the event loop, and the database numbers nothing', async (t) => {
  const hole = await blackHole()
  t.after(hole.end)
  const away = plain.$extends(keymill(models, { store: `mysql://app:hush@127.0.0.1:${hole.port}/ids?tls=off&connect_timeout=200ms` }))
  const before = await plain.order.count()
  let error!: Error & { code?: string }
  await loopGoesOn(t, async () => (error = await rejection(() => away.order.create({ data: { lines: { create: {} } } }))))
  assert.match(error.message, /^(Order|Line)\.(id|no): /)
  assert.match(error.code!, /^(STORE_UNAVAILABLE|DEADLINE)$/)
  assert.ok(!error.message.includes('hush'))
  assert.equal(await plain.order.count(), before)
  // No table is asked for the keys of a serial: here the number itself is waited for.
  await loopGoesOn(t, async () => (error = await rejection(() => away.line.create({ data: { id: 6_000_000_000n, orderId: 1n } }))))
  assert.match(error.message, /^Line\.no: /)
})

test('without a store the program names the mill, or DATABASE_URL does, or there is none', async () => {
  delete process.env.DATABASE_URL
  const prisma = plain.$extends(keymill({ Order: { id: 'segment:prisma-orders' } }))
  assert.match((await rejection(() => prisma.order.create({ data: {} }))).message, /^Order\.id: no mill is named, and DATABASE_URL is not set; write keymill\(models, \{ store: /)
  const mill = open('memory:')
  mill.segment('prisma-orders').fill(new BigUint64Array(900_000))
  use(mill)
  const { id } = await prisma.order.create({ data: {} })
  assert.equal(id, 900_001n)
  await plain.order.delete({ where: { id } })
  use(null)
  mill.close()
})
