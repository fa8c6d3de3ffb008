import 'reflect-metadata'
import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { after, before, test } from 'node:test'
import { Column, DataSource, DeleteDateColumn, Entity, ManyToOne, OneToMany, PrimaryColumn, PrimaryGeneratedColumn, TableInheritance, ChildEntity, type DataSourceOptions } from 'typeorm'
import { open, use } from 'keymill'
import { KeymillId, KeymillSubscriber } from 'keymill/typeorm'
import { blackHole, children, database, file, kind, loopGoesOn, rejection } from './support.js'

@Entity('Orders')
class Order {
  @PrimaryColumn('bigint') @KeymillId('segment:orders') id!: string
  @Column({ nullable: true, unique: true, type: 'varchar', length: 50 }) mail!: string | null
  @Column({ default: 0 }) total!: number
  @OneToMany(() => Line, (line) => line.order, { cascade: true }) lines!: Line[]
}

@Entity('lines')
class Line {
  @PrimaryColumn('bigint') @KeymillId() id!: string
  @ManyToOne(() => Order, (order) => order.lines) order!: Order
  @Column({ type: 'varchar', length: 20 }) @KeymillId('serial:lines/no?number=000000') no!: string
}

abstract class Base {
  @PrimaryColumn('varchar', { length: 30 }) @KeymillId('segment:{table}?text=crockford&prefix=tic_') id!: string
}
@Entity('tickets')
class Ticket extends Base {
  @Column() seats!: number
}

@Entity('animals')
@TableInheritance({ column: { type: 'varchar', length: 20, name: 'type' } })
class Animal {
  @PrimaryColumn('bigint') @KeymillId() id!: string
}
@ChildEntity()
class Cat extends Animal {
  @Column() lives!: number
}
@ChildEntity()
class Dog extends Animal {
  @DeleteDateColumn() gone!: Date | null
}

class Stamp {
  @Column('bigint') @KeymillId('segment:stamps') rank!: number
}
@Entity('parcels')
class Parcel {
  @PrimaryColumn(kind === 'sqlite' ? 'bigint' : 'int') @KeymillId() id!: number
  @Column(() => Stamp) stamp!: Stamp
}

@Entity('sales')
class Sale {
  // As a number of JavaScript, which TypeORM reads of SQLite, it would lose digits.
  @PrimaryColumn(kind === 'sqlite' ? 'varchar' : 'bigint') @KeymillId('business:sales', { key: (sale: Sale) => sale.buyer }) id!: string
  @Column({ type: 'varchar', length: 20 }) buyer!: string
}

const entities = [Order, Line, Ticket, Animal, Cat, Dog, Parcel, Sale]
// It has the interface of better-sqlite3, whose binaries are for Node 22 and later.
const Database = createRequire(import.meta.url)('libsql')
function driver(path: string, options: object) {
  return new Database(path, options)
}
const shop = (process.env.KEYMILL_TEST_SHOP ??= file('shop.db'))
function options(more: object = {}): DataSourceOptions {
  const common = { entities, subscribers: [KeymillSubscriber], ...more }
  if (kind === 'sqlite') return { type: 'better-sqlite3', driver, database: shop, ...common } as DataSourceOptions
  return { type: kind, url: database, ...common } as DataSourceOptions
}

// Another process of the same shop: it inserts, and prints its ids.
if (process.env.KEYMILL_TEST_CHILD !== undefined) {
  const source = await new DataSource(options()).initialize()
  const ids: string[] = []
  for (let i = 0; i < 20; i++) ids.push(...(await source.getRepository(Order).save(Array.from({ length: 10 }, () => ({})))).map(({ id }) => id))
  await source.destroy()
  console.log(ids.join(' '))
  process.exit(0)
}

let shopSource: DataSource
before(async () => {
  shopSource = await new DataSource(options()).initialize()
  for (const table of ['lines', 'Orders', 'tickets', 'animals', 'parcels', 'sales']) await shopSource.query(`DROP TABLE IF EXISTS ${kind === 'mysql' ? `\`${table}\`` : `"${table}"`}`)
  const builder = shopSource.driver.createSchemaBuilder()
  await builder.build()
  if (kind !== 'sqlite') {
    const mill = open((await import('keymill')).storeOf(database))
    mill.init('segment:orders', 'serial:lines/no?number=000000', 'business:sales')
    mill.close()
  }
})
after(() => shopSource?.destroy())

test('an entity, and the entities that it cascades to, have their ids before the insert', async () => {
  const order = new Order()
  order.lines = [new Line(), new Line()]
  const orders = shopSource.getRepository(Order)
  await orders.save(order)
  assert.match(String(order.id), /^\d+$/, 'TypeORM reads a BIGINT of SQLite as a number')
  assert.match(order.lines[0].no, /^\d{8}\d{6}$/)
  const found = await orders.findOneOrFail({ where: { id: order.id }, relations: { lines: true } })
  assert.deepEqual(found.lines.map(({ id }) => String(id)).sort(), order.lines.map(({ id }) => String(id)).sort())
  await orders.save(order)
  assert.equal(await orders.countBy({ id: order.id }), 1, 'the second save is an update')
})

test('save, insert, upsert and the query builder set ids, of entities and of plain objects', async () => {
  const orders = shopSource.getRepository(Order)
  const saved = await orders.save([{ mail: 'a' }, { mail: 'b' }])
  const inserted = await orders.insert([{ mail: 'c' }, { mail: 'd' }])
  await orders.upsert({ mail: 'e', total: 1 }, ['mail'])
  const built = await shopSource.createQueryBuilder().insert().into(Order).values([{ mail: 'f' }, { mail: 'g' }]).execute()
  const ids = [...saved, ...inserted.identifiers, ...built.identifiers].map(({ id }) => String(id))
  assert.equal(new Set(ids).size, 6)
  const first = await orders.findOneByOrFail({ mail: 'e' })
  await orders.upsert({ mail: 'e', total: 2 }, ['mail'])
  const { id, total } = await orders.findOneByOrFail({ mail: 'e' })
  assert.deepEqual([id, total], [first.id, 2], 'a row that is there keeps its id')
  for (const found of ids) assert.equal(await orders.countBy({ id: found }), 1)
})

// SQLite itself answers `busy` where two processes write.
test('two processes and this one have no id in common', { skip: kind === 'sqlite' && 'its driver does not wait for another writer' }, async () => {
  const others = children(2, import.meta.url)
  const own: string[] = []
  for (let i = 0; i < 20; i++) own.push(String((await shopSource.getRepository(Order).save({})).id))
  const ids = [...own, ...(await others)]
  assert.equal(ids.length, 420)
  assert.equal(new Set(ids).size, 420)
})

test('an id that is set is kept', async () => {
  const orders = shopSource.getRepository(Order)
  const set = 5_000_000_000_000_000
  await orders.insert({ id: String(set), mail: 'set' })
  assert.equal(await orders.countBy({ id: String(set) }), 1)
  await orders.delete({ id: String(set) })
})

test('classes inherit ids, and a table has one source', async () => {
  const ticket = await shopSource.getRepository(Ticket).save({ seats: 2 })
  assert.match(ticket.id, /^tic_[0-9A-Z]{13}$/)
  const animal = await shopSource.getRepository(Animal).save({})
  const cat = await shopSource.getRepository(Cat).save({ lives: 9 })
  assert.equal(BigInt(cat.id), BigInt(animal.id) + 1n)
})

test('a number, a column of an embedded class and a business id get theirs', async () => {
  const parcel = await shopSource.getRepository(Parcel).save({})
  assert.equal(typeof parcel.id, 'number')
  assert.equal(typeof parcel.stamp.rank, 'number')
  const sales = await shopSource.getRepository(Sale).save([{ buyer: 'buyer-42' }, { buyer: 'buyer-42' }])
  assert.equal(BigInt(sales[0].id) >> 47n, 56443n)
  assert.notEqual(sales[0].id, sales[1].id)
})

test('a data source without the subscriber does not start', async () => {
  const error = await rejection(() => new DataSource(options({ subscribers: [] })).initialize())
  assert.equal(error.code, 'INVALID_CONFIG')
  assert.match(error.message, /^Order\.id has @KeymillId, and its DataSource does not know the subscriber that sets it; write `subscribers: \[KeymillSubscriber\]`$/)
})

test('what the commands for migrations connect with starts without the subscriber', async () => {
  // As typeorm/commands/MigrationRunCommand does.
  const source = new DataSource(options())
  source.setOptions({ subscribers: [], synchronize: false, migrationsRun: false, dropSchema: false })
  await source.initialize()
  assert.deepEqual(await source.runMigrations(), [])
  await source.destroy()
})

test('an empty url says nothing, as TypeORM takes it', { skip: kind === 'sqlite' && 'it has no url' }, async () => {
  const { hostname: host, port, username, password, pathname } = new URL(database)
  const parts = { url: '', host, port: Number(port), username, password, database: pathname.slice(1) }
  const source = await new DataSource(options(parts)).initialize()
  const { id } = await source.getRepository(Order).save({})
  await source.getRepository(Order).delete({ id })
  await source.destroy()
})

test('what cannot be given is refused at the start, with the entity and the property', async () => {
  const told: [Function, RegExp][] = []
  {
    @Entity() class Numbered { @PrimaryGeneratedColumn() @KeymillId() id!: string }
    told.push([Numbered, /^Numbered\.id has @KeymillId, and the database generates it; write @PrimaryColumn\('bigint'\)/])
    @Entity() class Wrong { @PrimaryColumn('bigint') @KeymillId('segment:orders?stpe=5') id!: string }
    told.push([Wrong, /^Wrong\.id: .*`stpe`/])
    @Entity() class Keyless { @PrimaryColumn('bigint') @KeymillId('business:orders') id!: string }
    told.push([Keyless, /^Keyless\.id: `business:orders` gives ids for a key; write \{ key: /])
    @Entity() class Serials { @PrimaryColumn('bigint') @KeymillId('serial:a/b?number=000') id!: number }
    told.push([Serials, /^Serials\.id: `serial:a\/b\?number=000` gives texts, and the field is a number; declare it as a string/])
    @Entity() class Flakes { @PrimaryColumn('bigint') @KeymillId('snowflake:tx?worker=1') id!: number }
    told.push([Flakes, /^Flakes\.id: ids of `snowflake:tx` do not fit a number/])
    @Entity() class Short { @PrimaryColumn('int') @KeymillId('snowflake:tx?worker=1') id!: string }
    told.push([Short, kind === 'sqlite' ? /^Short\.id has @KeymillId, and SQLite numbers an INTEGER PRIMARY KEY/ : /^Short\.id: ids of `snowflake:tx` do not fit a number/])
  }
  for (const [entity, message] of told) {
    const error = await rejection(() => new DataSource(options({ entities: [entity] })).initialize())
    assert.equal((error as { name: string }).name, 'KeymillError', String(error))
    assert.match(error.message, message)
  }
})

test('keys that a table has and the source did not give are refused, and the remedy is named', async () => {
  const cats = shopSource.getRepository(Animal)
  await cats.insert({ id: '77000000' })
  const other = await new DataSource(options()).initialize()
  const error = await rejection(() => other.getRepository(Animal).save({}))
  assert.equal(error.code, 'STORE_REFUSED')
  assert.match(error.message, /^Animal\.id: segment:animals goes on at \d+, and the table animals has keys up to 77000000, .* repair 'segment:animals' --to 77000001 --yes/)
  await other.destroy()
  await cats.delete({ id: '77000000' })
})

test('rows of other kinds and deleted rows have keys too', async () => {
  const dogs = shopSource.getRepository(Dog)
  await dogs.insert({ id: '78000000', gone: new Date() })
  for (const kindOfAnimal of [Cat, Dog]) {
    const other = await new DataSource(options()).initialize()
    const error = await rejection(() => other.getRepository<Cat | Dog>(kindOfAnimal).save((kindOfAnimal === Cat ? { lives: 9 } : {}) as Cat))
    assert.match(error.message, /has keys up to 78000000/)
    await other.destroy()
  }
  await dogs.delete({ id: '78000000' })
})

test('a transaction that locks the table waits no longer than the deadline for an insert of another one', { skip: kind !== 'postgres' && 'a lock of PostgreSQL' }, async () => {
  const other = await new DataSource(options()).initialize()
  const [locks, asks] = [other.createQueryRunner(), other.createQueryRunner()]
  await locks.startTransaction()
  await locks.query('LOCK TABLE "animals" IN ACCESS EXCLUSIVE MODE')
  const first = asks.manager.getRepository(Cat).save({ lives: 1 }).catch((error: unknown) => error)
  while ((await other.query('SELECT 1 FROM pg_locks WHERE NOT granted')).length === 0) await new Promise((done) => setTimeout(done, 10))
  const second = await rejection(() => locks.manager.getRepository(Cat).save({ lives: 2 }))
  assert.equal(second.code, 'DEADLINE')
  await locks.rollbackTransaction()
  await first
  assert.ok(BigInt((await asks.manager.getRepository(Cat).save({ lives: 3 })).id) > 0n)
  for (const runner of [locks, asks]) await runner.release()
  await other.destroy()
})

test('a mill that the program shares comes before the mill of the database', async () => {
  const mill = open(`sqlite:${file('ids.db')}`)
  mill.segment('orders').fill(new BigUint64Array(500_000))
  use(mill)
  try {
    const { id } = await shopSource.getRepository(Order).save({})
    assert.equal(BigInt(id), 500_001n)
    await shopSource.getRepository(Order).delete({ id })
  } finally {
    use(null)
    mill.close()
  }
})

test('a store that does not answer holds up the insert and not the event loop, and the database numbers nothing', async (t) => {
  const hole = await blackHole()
  t.after(hole.end)
  const mill = open(`mysql://app:hush@127.0.0.1:${hole.port}/ids?tls=off&connect_timeout=200ms`)
  use(mill)
  try {
    const orders = shopSource.getRepository(Order)
    const before = await orders.count()
    let error!: Error & { code?: string }
    await loopGoesOn(t, async () => (error = await rejection(() => orders.save([{}, {}]))))
    assert.match(error.message, /^Order\.id: /)
    assert.match(error.code!, /^(STORE_UNAVAILABLE|DEADLINE)$/)
    assert.ok(!error.message.includes('hush'))
    assert.equal(await orders.count(), before)
    // No table is asked for the keys of a serial: here the number itself is waited for.
    await loopGoesOn(t, async () => (error = await rejection(() => shopSource.getRepository(Line).save({ id: '6000000000' }))))
    assert.match(error.message, /^Line\.no: /)
  } finally {
    use(null)
    mill.close()
  }
})

test('two hundred data sources leave no mill and no thread', async () => {
  const { readdirSync } = await import('node:fs')
  const inMemory = () => new DataSource(kind === 'sqlite' ? ({ type: 'better-sqlite3', driver, database: ':memory:', entities: [Ticket], subscribers: [KeymillSubscriber], synchronize: true } as DataSourceOptions) : options({ entities: [Ticket] }))
  const round = async () => {
    const source = await inMemory().initialize()
    await source.getRepository(Ticket).save({ seats: 1 })
    await source.destroy()
  }
  await round()
  const threads = readdirSync('/proc/self/task').length
  for (let i = 0; i < (kind === 'sqlite' ? 200 : 10); i++) await round()
  assert.ok(readdirSync('/proc/self/task').length <= threads + 2)
})
