// Rows a second in TypeORM and Prisma with ids of keymill, of the database and uuid v7, and what a module adds to an id. The page's table is
// this program's. Run it in a folder of ci/steps/node-frameworks: KEYMILL_TEST_DATABASE=… node tests/frameworks.mjs
import 'reflect-metadata'
import { Column, DataSource, Entity, PrimaryColumn, PrimaryGeneratedColumn } from 'typeorm'
import { v7 } from 'uuid'
import { open, storeOf, use } from 'keymill'
import { KeymillId, KeymillSubscriber } from 'keymill/typeorm'
import { keymill } from 'keymill/prisma'

const database = process.env.KEYMILL_TEST_DATABASE
const kind = database.startsWith('mysql') ? 'mysql' : 'postgres'
const ROWS = 10_000
const median = (all) => all.sort((a, b) => a - b)[all.length >> 1]

function entity(name, key) {
  const type = { [name]: class {} }[name]
  key(type.prototype)
  Column('varchar', { length: 20 })(type.prototype, 'name')
  Entity(name.toLowerCase())(type)
  return type
}
const Ours = entity('Ours', (at) => (PrimaryColumn('bigint')(at, 'id'), KeymillId('segment:ours', { as: 'string' })(at, 'id')))
const Auto = entity('Auto', (at) => PrimaryGeneratedColumn({ type: 'bigint' })(at, 'id'))
const Uuid = entity('Uuid', (at) => PrimaryColumn('varchar', { length: 36 })(at, 'id'))

const source = await new DataSource({ type: kind, url: database, entities: [Ours, Auto, Uuid], subscribers: [KeymillSubscriber], synchronize: true }).initialize()
const store = storeOf(database)
const mill = open(store)
mill.init('segment:ours')
const rows = (id) => Array.from({ length: ROWS }, () => ({ ...id(), name: 'a' }))
const kinds = { keymill: [Ours, () => ({})], 'the database’s counter': [Auto, () => ({})], 'uuid v7': [Uuid, () => ({ id: v7() })] }

const provider = kind === 'postgres' ? 'postgresql' : kind
const { PrismaClient } = await import(`./prisma-${provider}/client.js`)
const adapter = kind === 'mysql' ? new (await import('@prisma/adapter-mariadb')).PrismaMariaDb(database.replace(/^mysql:/, 'mariadb:')) : new (await import('@prisma/adapter-pg')).PrismaPg({ connectionString: database })
const plain = new PrismaClient({ adapter })
for (const [table, key] of [['orders', 'BIGINT NOT NULL PRIMARY KEY'], ['buyers', 'VARCHAR(40) NOT NULL PRIMARY KEY'], [kind === 'mysql' ? '`Numbered`' : '"Numbered"', kind === 'mysql' ? 'BIGINT AUTO_INCREMENT PRIMARY KEY' : 'BIGSERIAL PRIMARY KEY']]) {
  await plain.$executeRawUnsafe(`DROP TABLE IF EXISTS ${table}`)
  const rest = table === 'orders' ? `mail VARCHAR(40) UNIQUE, total INT NOT NULL DEFAULT 0, ${kind === 'mysql' ? '`buyerId`' : '"buyerId"'} VARCHAR(40)` : 'name VARCHAR(40) NOT NULL'
  await plain.$executeRawUnsafe(`CREATE TABLE ${table} (id ${key}, ${rest})`)
}
const prisma = plain.$extends(keymill({ Order: { id: 'segment:prisma-speed' } }, { store }))

async function timed(work) {
  const begin = process.hrtime.bigint()
  await work()
  return ROWS / (Number(process.hrtime.bigint() - begin) / 1e9)
}
const results = {}
for (let round = 0; round < 5; round++) {
  for (const [name, [type, id]] of Object.entries(kinds)) {
    const repository = source.getRepository(type)
    for (const [verb, work] of Object.entries({ save: () => repository.save(rows(id), { chunk: 1000 }), insert: async () => { for (let i = 0; i < 10; i++) await repository.insert(rows(id).slice(0, 1000)) } })) {
      await repository.clear()
      ;(results[`TypeORM ${verb}(10 000)`] ??= {})[name] = [...(results[`TypeORM ${verb}(10 000)`]?.[name] ?? []), await timed(work)]
    }
  }
  for (const [name, work] of Object.entries({
    keymill: () => prisma.order.createMany({ data: Array.from({ length: ROWS }, () => ({ total: 1 })) }),
    'the database’s counter': () => plain.numbered.createMany({ data: Array.from({ length: ROWS }, () => ({ name: 'a' })) }),
    'uuid v7': () => plain.buyer.createMany({ data: Array.from({ length: ROWS }, () => ({ id: v7(), name: 'a' })) }),
  })) {
    for (const model of ['order', 'buyer', 'numbered']) await plain[model].deleteMany()
    ;(results['Prisma createMany(10 000)'] ??= {})[name] = [...(results['Prisma createMany(10 000)']?.[name] ?? []), await timed(work)]
  }
}
console.log(`| ${kind === 'mysql' ? 'MariaDB' : 'PostgreSQL'}, rows a second | ${Object.keys(kinds).join(' | ')} |`)
for (const [verb, by] of Object.entries(results)) console.log(`| ${verb} | ${Object.keys(kinds).map((name) => Math.round(median(by[name])).toLocaleString('en').replaceAll(',', ' ')).join(' | ')} |`)

// What a module adds to an id from memory.
await source.getRepository(Ours).clear()
const memory = open('memory:')
use(memory)
const ids = memory.source('segment:ours?min_step=4000000')
const subscriber = new KeymillSubscriber()
const event = (entity) => ({ entity, metadata: source.getMetadata(Ours), manager: source.manager, connection: source, dataSource: source })
await subscriber.beforeInsert(event({}))
const N = 300_000
const each = (work) => median(Array.from({ length: 9 }, () => {
  const begin = process.hrtime.bigint()
  for (let i = 0; i < N; i++) work()
  return Number(process.hrtime.bigint() - begin) / N
}))
ids.fill(new BigUint64Array(1_000_000))
const alone = each(() => ({ id: ids.next().toString() }))
const event1 = event(undefined)
const within = each(() => {
  event1.entity = { id: undefined }
  return subscriber.beforeInsert(event1)
})
console.log(`an id and its text ${alone.toFixed(0)} ns; set by KeymillSubscriber ${within.toFixed(0)} ns`)
use(null)
let call
const stub = { _runtimeDataModel: plain._runtimeDataModel, _engineConfig: plain._engineConfig, $extends: ({ query }) => (call = query.$allModels.createMany), order: { aggregate: async () => ({ _max: { id: 0n } }) } }
keymill({ Order: { id: 'segment:stub?min_step=4000000' } }, { store: 'memory:stub' })(stub)
const many = Array.from({ length: ROWS }, () => ({ total: 1 }))
const source2 = open('memory:stub').source('segment:stub?min_step=4000000')
const perRow = async (work) => median(await (async () => { const all = []; for (let i = 0; i < 15; i++) { const begin = process.hrtime.bigint(); await work(); all.push(Number(process.hrtime.bigint() - begin) / ROWS) } return all })())
const copied = await perRow(async () => many.map((row) => ({ ...row, id: source2.next() })))
const walked = await perRow(() => call({ model: 'Order', operation: 'createMany', args: { data: many }, query: async () => {} }))
console.log(`an id in a copy of its row ${copied.toFixed(0)} ns; set by the extension ${walked.toFixed(0)} ns`)
await source.destroy()
await plain.$disconnect()
mill.close()
process.exit(0)
