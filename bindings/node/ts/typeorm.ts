// TypeORM: entities whose keys come from keymill. A subscriber sets them before each insert, whichever way the rows come.
import { ApplicationMill, checkFields, FieldIds, tableSpec, type As, type Field } from './application'
import { argument, KeymillError, shown } from './error'
import { storeOf, type DatabaseProperties } from './mill'
import type { Key } from './router'

// The parts of TypeORM that are used here, in all its versions from 0.3 to 1. The package needs none of them to be installed.
interface Column {
  readonly target: Function | string
  readonly propertyName: string
  readonly propertyPath: string
  readonly isGenerated: boolean
  readonly isPrimary: boolean
  readonly unsigned: boolean
  readonly embeddedMetadata?: object
  getEntityValue(entity: object): unknown
  setEntityValue(entity: object, value: unknown): void
}
interface Entity {
  readonly name: string
  readonly target: Function | string
  readonly tableName: string
  readonly tableType: string
  readonly columns: Column[]
  readonly parentEntityMetadata?: Entity
}
interface DataSource {
  readonly entityMetadatas: Entity[]
  readonly subscribers: object[]
  readonly options: DatabaseProperties
  readonly driver: { readonly options: DatabaseProperties; normalizeType(column: Column): string }
}
interface Manager {
  createQueryBuilder(target: Function | string, alias: string): { withDeleted(): { select(what: string, as: string): { getRawOne(): Promise<{ highest: unknown } | undefined> } } }
}
/** What TypeORM tells a subscriber of an insert. */
export interface InsertEvent {
  entity?: object
  metadata: object
  manager: object
  connection?: object
  dataSource?: object
}
interface Patched {
  buildMetadatas(): Promise<void>
  destroy(): Promise<void>
}
interface TypeOrm {
  DataSource: { prototype: Patched }
  EventSubscriber(): (target: Function) => void
  getMetadataArgsStorage(): Record<symbol, unknown>
}

const typeorm: TypeOrm = require('typeorm')

/** Options of a field. */
export interface KeymillIdOptions<Entity = any> {
  /** What the property is given. Left out: what TypeScript says of it, else a string, which is what TypeORM reads a BIGINT as; of SQLite it reads a number. */
  as?: As
  /** The key of a business id: `{ key: (order) => order.buyer }`. */
  key?: (entity: Entity) => Key
}
interface Declared extends KeymillIdOptions {
  readonly spec: string
  /** What TypeScript says of the property, where it was told to (`emitDecoratorMetadata`). */
  readonly type: unknown
}

/** What is shared by all copies of this package that use one TypeORM. */
interface Common {
  /** Each class with its properties. */
  readonly declared: WeakMap<Function, Map<string, Declared>>
  readonly subscribers: WeakSet<Function>
  readonly sources: WeakMap<object, Ids>
}
const KEY = Symbol.for('keymill.typeorm')
const storage = typeorm.getMetadataArgsStorage()
const isFirst = storage[KEY] === undefined
const common = (storage[KEY] ??= { declared: new WeakMap(), subscribers: new WeakSet(), sources: new WeakMap() } satisfies Common) as Common

/**
 * An id that is set before the entity's row is inserted: `@PrimaryColumn('bigint') @KeymillId('segment:orders') id!: string`. Without a spec the
 * ids are the segment of the entity's table; `{table}` stands for it in a spec. An id that is set is kept.
 */
export function KeymillId<Entity = any>(spec = 'segment:{table}', options: KeymillIdOptions<Entity> = {}): PropertyDecorator {
  if (typeof spec !== 'string') throw argument(`@KeymillId takes a spec such as 'segment:orders', not ${shown(spec)}`)
  return (target, property) => {
    const { constructor } = target
    const type: unknown = (Reflect as { getMetadata?: Function }).getMetadata?.('design:type', target, property)
    const properties = common.declared.get(constructor) ?? new Map<string, Declared>()
    common.declared.set(constructor, properties.set(String(property), { ...options, spec, type }))
  }
}

/** Sets the ids of `@KeymillId`: `new DataSource({ …, subscribers: [KeymillSubscriber] })`. */
export class KeymillSubscriber {
  /** Called by TypeORM. */
  beforeInsert(event: InsertEvent): Promise<void> | void {
    if (event.entity === undefined) return
    const dataSource = (event.dataSource ?? event.connection) as DataSource
    return idsOf(dataSource).fill(event.entity, event.metadata as Entity, event.manager as Manager)
  }
}
typeorm.EventSubscriber()(KeymillSubscriber)
common.subscribers.add(KeymillSubscriber)

function idsOf(dataSource: DataSource): Ids {
  const found = common.sources.get(dataSource)
  if (found !== undefined) return found
  const made = new Ids(dataSource)
  common.sources.set(dataSource, made)
  return made
}

/** A column of an entity with its ids. */
interface Filled {
  readonly column: Column
  /** The property, where it is one of the entity itself: it is read and written for each row. */
  readonly property: string | undefined
  readonly ids: FieldIds
  readonly key: ((entity: any) => Key) | undefined
}

/** The ids of a data source's entities. */
class Ids {
  readonly mill: ApplicationMill
  readonly #entities = new Map<Entity, Filled[]>()

  constructor(dataSource: DataSource) {
    this.mill = new ApplicationMill(() => storeOfDataSource(dataSource.options))
    for (const entity of dataSource.entityMetadatas) {
      const filled = this.#filled(dataSource, entity)
      if (filled.length > 0) this.#entities.set(entity, filled)
    }
    const all = [...this.#entities.values()].flat().map(({ ids }) => ids.field)
    if (all.length === 0) return
    if (!dataSource.subscribers.some(({ constructor }) => common.subscribers.has(constructor)) && !isOfCommand(dataSource)) {
      throw new KeymillError('INVALID_CONFIG', `${all[0].where} has @KeymillId, and its DataSource does not know the subscriber that sets it; write \`subscribers: [KeymillSubscriber]\``)
    }
    checkFields(all)
  }

  #filled(dataSource: DataSource, entity: Entity): Filled[] {
    const found: Filled[] = []
    for (const column of entity.columns) {
      const declared = typeof column.target === 'function' ? declaredAt(column.target, column.propertyName) : undefined
      if (declared === undefined || entity.tableType === 'view') continue
      const where = `${entity.name}.${column.propertyPath}`
      const { most, isNumbered, isText, reads } = typeOf(dataSource, column)
      if (column.isGenerated) {
        throw new KeymillError('INVALID_CONFIG', `${where} has @KeymillId, and the database generates it; write @PrimaryColumn('bigint') in place of @PrimaryGeneratedColumn()`)
      }
      if (isNumbered) {
        throw new KeymillError('INVALID_CONFIG', `${where} has @KeymillId, and SQLite numbers an INTEGER PRIMARY KEY by itself where a row comes without an id; write @PrimaryColumn('bigint')`)
      }
      const field: Field = {
        where,
        spec: tableSpec(declared.spec, entity.tableName),
        as: declared.as ?? reads ?? AS.get(declared.type) ?? 'string',
        table: entity.tableName,
        isText,
        ...(most !== undefined && { most }),
        ...(declared.key !== undefined && { hasKey: true }),
      }
      found.push({ column, property: column.embeddedMetadata === undefined ? column.propertyName : undefined, ids: new FieldIds(this.mill, field), key: declared.key })
    }
    return found
  }

  fill(entity: object, metadata: Entity, manager: Manager): Promise<void> | void {
    const filled = this.#entities.get(metadata)
    if (filled === undefined) return
    let waiting: Promise<void>[] | undefined
    for (const one of filled) {
      const { column, property, ids, key } = one
      const value = property === undefined ? column.getEntityValue(entity) : (entity as any)[property]
      if (value !== undefined && value !== null) continue
      const by = key?.(entity)
      const id = ids.now(by)
      if (id !== undefined) set(one, entity, id)
      else (waiting ??= []).push(ids.later(() => highest(manager, metadata, column), by).then((late) => set(one, entity, late)))
    }
    if (waiting !== undefined) return Promise.all(waiting).then(() => undefined)
  }
}

/** TypeORM's commands for migrations take the subscribers out before they connect, and insert no entity. */
function isOfCommand({ options }: DataSource): boolean {
  const { subscribers, synchronize, migrationsRun, dropSchema } = options as Record<string, unknown>
  return Array.isArray(subscribers) && subscribers.length === 0 && synchronize === false && migrationsRun === false && dropSchema === false
}

function set({ column, property }: Filled, entity: object, id: unknown): void {
  if (property === undefined) column.setEntityValue(entity, id)
  else (entity as any)[property] = id
}

/** What is declared for a property in its class, or in a class that it extends. */
function declaredAt(target: Function, property: string): Declared | undefined {
  for (let type: any = target; typeof type === 'function'; type = Object.getPrototypeOf(type)) {
    const found = common.declared.get(type)?.get(property)
    if (found !== undefined) return found
  }
  return undefined
}

/** By the connection of the insert: a pool may have no other that is free. All rows of the table count: of every kind of its entities, and deleted ones. */
async function highest(manager: Manager, entity: Entity, { propertyPath }: Column): Promise<bigint> {
  let whole = entity
  while (whole.tableType === 'entity-child' && whole.parentEntityMetadata !== undefined) whole = whole.parentEntityMetadata
  const row = await manager.createQueryBuilder(whole.target, 'row').withDeleted().select(`MAX(row.${propertyPath})`, 'highest').getRawOne()
  const text = String(row?.highest ?? 0)
  return /^\d+$/.test(text) ? BigInt(text) : 0n
}

const AS = new Map<unknown, As>([[BigInt, 'bigint'], [Number, 'number'], [String, 'string']])
const BITS: Record<string, number> = { tinyint: 7, smallint: 15, int2: 15, mediumint: 23, int: 31, integer: 31, int4: 31 }

/** What the column holds; `reads`: what TypeORM reads it as, whatever the property says. It compares a row that it has read with the entity. */
function typeOf({ driver }: DataSource, column: Column): { most?: number; isNumbered: boolean; isText: boolean; reads?: As } {
  const type = driver.normalizeType(column).toLowerCase()
  const bits = BITS[type]
  const isText = /char|text|uuid|string/.test(type)
  if (isSqlite(driver.options)) {
    const isNumber = bits !== undefined || type === 'bigint' || type === 'int8' || type === 'unsigned big int'
    return { isText, isNumbered: column.isPrimary && type === 'integer', ...(isNumber && { reads: 'number' }) }
  }
  if (bits === undefined) return { isText, isNumbered: false }
  return { most: 2 ** (bits + (column.unsigned ? 1 : 0)) - 1, isText, isNumbered: false, reads: 'number' }
}

function isSqlite({ type }: DatabaseProperties): boolean {
  return ['better-sqlite3', 'sqlite', 'sqljs'].includes(String(type))
}

// Options of TypeORM itself, which say nothing of the database. The rest is the driver's, and `storeOf` judges it.
const OWN = ['type', 'name', 'dropSchema', 'entities', 'subscribers', 'migrations', 'logger', 'cache', 'namingStrategy', 'driver', 'nativeDriver', 'replication', 'url', 'extra', 'poolErrorHandler']

/** The configuration of a mill in the database of a data source. */
function storeOfDataSource(options: DatabaseProperties): string {
  const { type, url, extra, replication } = options
  if (isSqlite(options)) {
    const file = options.database ?? options.location
    // It is as short-lived as the rows.
    if (typeof file !== 'string' || file === '' || file === ':memory:') return 'memory:'
    return storeOf(`sqlite:///${file}`)
  }
  const scheme = type === 'mysql' || type === 'mariadb' ? 'mysql:' : type === 'postgres' ? 'postgres:' : undefined
  if (scheme === undefined) {
    throw new KeymillError('INVALID_CONFIG', `keymill has no store in a database of TypeORM's type \`${String(type)}\`; name one: use(open('mysql://…')), or KEYMILL_CONFIG`)
  }
  const properties: Record<string, unknown> = {}
  const all = { ...options, ...((replication as { master?: object } | undefined)?.master ?? {}), ...((extra as object | undefined) ?? {}) }
  for (const [name, value] of Object.entries(all)) if (!OWN.includes(name)) properties[name] = value
  const { url: at = url } = ((replication as { master?: DatabaseProperties } | undefined)?.master ?? {}) as DatabaseProperties
  return storeOf(typeof at === 'string' && at !== '' ? at : `${scheme}//`, properties)
}

// A data source without the subscriber fails when it starts, and its mill is closed when it is destroyed. TypeORM has no hook for either.
if (isFirst) {
  const { prototype } = typeorm.DataSource
  const { buildMetadatas, destroy } = prototype
  prototype.buildMetadatas = async function (this: DataSource & Patched) {
    await buildMetadatas.call(this)
    common.sources.delete(this)
    idsOf(this)
  }
  prototype.destroy = async function (this: DataSource & Patched) {
    const ids = common.sources.get(this)
    common.sources.delete(this)
    await destroy.call(this)
    await ids?.mill.close()
  }
}
