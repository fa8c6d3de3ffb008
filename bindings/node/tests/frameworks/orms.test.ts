// `lazy` in ORMs that call a function for a default, and the recipes of those that do not. Sequelize's and Knex's SQLite are downloads.
import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { after, before, test } from 'node:test'
import { lazy, open, storeOf, use, type Mill } from 'keymill'
import { database, file, kind } from './support.js'

const require = createRequire(import.meta.url)
const Database = require('libsql')
const skip = kind === 'sqlite' && 'its SQLite is a download'

let mill: Mill
before(() => {
  mill = open(kind === 'sqlite' ? `sqlite:${file('ids.db')}` : storeOf(database))
  mill.init('segment:orders')
  use(mill)
})
after(() => {
  use(null)
  mill?.close()
})

const CREATE = (table: string) => `CREATE TABLE ${table} (id BIGINT NOT NULL PRIMARY KEY, name VARCHAR(20))`
function pool(): any {
  if (kind === 'mysql') return require('mysql2').createPool({ uri: database, supportBigNumbers: true, bigNumberStrings: true })
  return new (require('pg').Pool)({ connectionString: database })
}
const sql = (on: any, text: string) => (kind === 'mysql' ? on.promise().query(text) : on.query(text))
const close = (on: any) => (kind === 'mysql' ? on.promise().end() : on.end())

/** Five rows have five different ids, and the id that the program has set is one of them. */
function isGood(ids: unknown[], set: unknown) {
  const texts = ids.map(String)
  assert.equal(new Set(texts).size, texts.length)
  assert.ok(texts.every((id) => /^\d+$/.test(id)), String(texts))
  assert.ok(texts.includes(String(set)), `${set} of ${texts}`)
}

test('Drizzle: $defaultFn', async () => {
  const set = 3_000_000_000_000n
  if (kind === 'sqlite') {
    const { drizzle } = await import('drizzle-orm/libsql')
    const { customType, sqliteTable, text } = await import('drizzle-orm/sqlite-core')
    const int8 = customType<{ data: bigint; driverData: number | bigint }>({ dataType: () => 'bigint', fromDriver: (value) => BigInt(value) })
    const orders = sqliteTable('drizzle_orders', { id: int8('id').primaryKey().$defaultFn(lazy('segment:orders')), name: text('name') })
    const connection = require('@libsql/client').createClient({ url: `file:${file('drizzle.db')}` })
    await connection.execute(CREATE('drizzle_orders'))
    const db = drizzle(connection)
    await db.insert(orders).values([{ name: 'a' }, { name: 'b' }, { id: set, name: 'c' }])
    isGood((await db.select().from(orders)).map(({ id }) => id), set)
    connection.close()
    return
  }
  const on = pool()
  await sql(on, 'DROP TABLE IF EXISTS drizzle_orders')
  await sql(on, CREATE('drizzle_orders'))
  if (kind === 'mysql') {
    const { drizzle } = await import('drizzle-orm/mysql2')
    const { bigint, mysqlTable, text } = await import('drizzle-orm/mysql-core')
    const orders = mysqlTable('drizzle_orders', { id: bigint('id', { mode: 'bigint' }).primaryKey().$defaultFn(lazy('segment:orders')), name: text('name') })
    const db = drizzle(on)
    await db.insert(orders).values([{ name: 'a' }, { name: 'b' }, { id: set, name: 'c' }])
    isGood((await db.select().from(orders)).map(({ id }) => id), set)
  } else {
    const { drizzle } = await import('drizzle-orm/node-postgres')
    const { bigint, pgTable, text } = await import('drizzle-orm/pg-core')
    const orders = pgTable('drizzle_orders', { id: bigint('id', { mode: 'bigint' }).primaryKey().$defaultFn(lazy('segment:orders')), name: text('name') })
    const db = drizzle(on)
    await db.insert(orders).values([{ name: 'a' }, { name: 'b' }, { id: set, name: 'c' }])
    isGood((await db.select().from(orders)).map(({ id }) => id), set)
  }
  await close(on)
})

test('Sequelize: defaultValue, of create and of bulkCreate', { skip }, async () => {
  const { DataTypes, Sequelize } = await import('sequelize')
  const sequelize = new Sequelize(database, { logging: false, ...(kind === 'mysql' && { dialect: 'mysql', dialectModule: require('mysql2') }) })
  const Order = sequelize.define('sequelize_order', { id: { type: DataTypes.BIGINT, primaryKey: true, defaultValue: lazy('segment:orders', { as: 'string' }) }, name: DataTypes.STRING(20) }, { timestamps: false })
  await sequelize.sync({ force: true })
  await Order.create({ name: 'a' })
  await Order.bulkCreate([{ name: 'b' }, { name: 'c' }, { id: '3000000000000', name: 'd' }])
  isGood((await Order.findAll()).map((order) => order.get('id')), 3_000_000_000_000n)
  await sequelize.close()
})

test('MikroORM: onCreate', { skip }, async () => {
  const { EntitySchema, MikroORM } = (await import(kind === 'mysql' ? '@mikro-orm/mysql' : '@mikro-orm/postgresql')) as any
  const Order = new EntitySchema({ name: 'MikroOrder', tableName: 'mikro_order', properties: { id: { type: 'bigint', primary: true, onCreate: lazy('segment:orders', { as: 'string' }) }, name: { type: 'string', length: 20 } } })
  const url = new URL(database)
  const orm = await MikroORM.init({ entities: [Order], dbName: url.pathname.slice(1), clientUrl: database, allowGlobalContext: true })
  await orm.em.getConnection().execute('DROP TABLE IF EXISTS mikro_order')
  await orm.em.getConnection().execute(CREATE('mikro_order'))
  for (const name of ['a', 'b']) orm.em.persist(orm.em.create('MikroOrder', { name }))
  orm.em.persist(orm.em.create('MikroOrder', { id: '3000000000000', name: 'c' }))
  await orm.em.flush()
  isGood((await orm.em.getConnection().execute('SELECT id FROM mikro_order')).map(({ id }: any) => id), 3_000_000_000_000n)
  await orm.close()
})

test('Objection: $beforeInsert, which may wait', { skip }, async () => {
  const { default: knexOf } = (await import('knex')) as any
  const { Model } = require('objection')
  const knex = knexOf({ client: kind === 'mysql' ? 'mysql2' : 'pg', connection: database })
  await knex.raw('DROP TABLE IF EXISTS objection_orders')
  await knex.raw(CREATE('objection_orders'))
  const orders = lazy('segment:orders', { as: 'string' })
  class Order extends Model {
    declare id: string
    static tableName = 'objection_orders'
    async $beforeInsert() {
      this.id ??= await orders.nextAsync()
    }
  }
  const query = (Order as any).bindKnex(knex).query.bind((Order as any).bindKnex(knex))
  await query().insert({ name: 'a' })
  // MySQL inserts one row a statement here.
  for (const row of [{ name: 'b' }, { id: '3000000000000', name: 'c' }]) await query().insert(row)
  isGood((await knex('objection_orders').select('id')).map(({ id }: any) => id), 3_000_000_000_000n)
  await knex.destroy()
})

test('Kysely: an id in the values', async () => {
  const { Kysely, MysqlDialect, PostgresDialect, SqliteDialect } = await import('kysely')
  const on = kind === 'sqlite' ? new Database(file('kysely.db')) : pool()
  const dialect = kind === 'sqlite' ? new SqliteDialect({ database: on }) : kind === 'mysql' ? new MysqlDialect({ pool: on }) : new PostgresDialect({ pool: on })
  const db = new Kysely<{ kysely_orders: { id: bigint; name: string } }>({ dialect })
  await db.schema.dropTable('kysely_orders').ifExists().execute()
  await db.schema.createTable('kysely_orders').addColumn('id', 'bigint', (column) => column.primaryKey()).addColumn('name', 'varchar(20)').execute()
  const orders = lazy('segment:orders')
  await db.insertInto('kysely_orders').values({ id: await orders.nextAsync(), name: 'a' }).execute()
  const ids = await orders.takeAsync(2)
  await db.insertInto('kysely_orders').values([...ids.map((id) => ({ id, name: 'b' })), { id: 3_000_000_000_000n, name: 'c' }]).execute()
  isGood((await db.selectFrom('kysely_orders').select('id').execute()).map(({ id }) => id), 3_000_000_000_000n)
  await db.destroy()
})
