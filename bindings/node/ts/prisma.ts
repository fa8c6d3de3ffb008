// Prisma 7: an extension that sets ids before each row is created, in nested creates too. Prisma has no hook for a default, and shows an
// extension only the outermost call; so the extension walks its data, by the models that the client knows.
import { ApplicationMill, checkFields, FieldIds, tableSpec, type As, type Field } from './application'
import { argument, KeymillError, shown } from './error'
import { storeOf } from './mill'
import type { Key } from './router'

/** Where a field's ids come from: a spec, or for business ids a spec and the key that comes with each row. */
export type PrismaId = string | { spec: string; key?: (data: any) => Key }
/** Fields by model: `{ Order: { id: 'segment:orders' } }`. `{table}` in a spec is the model's table. */
export interface PrismaModels {
  [model: string]: { [field: string]: PrismaId }
}
export interface PrismaOptions {
  /** The configuration of a mill, such as `sqlite:keymill.db`. Left out: the mill of `use` or of KEYMILL_CONFIG, else the database of DATABASE_URL. */
  store?: string
}
/** An extension as `$extends` takes it: the client's type stays what it is. */
export type PrismaExtension = (client: any) => { $extends: { extArgs: { result: {}; model: {}; query: {}; client: {} } } }

// The parts of a client that are used here. Prisma calls them internal, so each is looked for before it is used.
interface ModelField {
  readonly name: string
  readonly kind: string
  readonly type: string
}
interface Model {
  readonly dbName: string | null
  readonly fields: ModelField[]
}
interface Client {
  readonly _runtimeDataModel?: { models?: Record<string, Model> }
  readonly _engineConfig?: { inlineSchema?: string; activeProvider?: string }
  _createItxClient?(transaction: unknown): Client
  $extends(extension: object): never
}
/** What Prisma tells an extension of a call. */
interface Call {
  model: string
  operation: string
  args: any
  query(args: unknown): Promise<unknown>
  __internalParams?: { transaction?: { kind: string } }
}

/** Mills by what `store` says: clients that are made again and again share one. */
const mills = new Map<string | undefined, ApplicationMill>()

/** Sets ids in all that a client creates: `new PrismaClient({ adapter }).$extends(keymill({ Order: { id: 'segment:orders' } }))`. An id that is set is kept. */
export function keymill(models: PrismaModels, options: PrismaOptions = {}): PrismaExtension {
  if (typeof models !== 'object' || models === null) throw argument(`keymill takes models such as { Order: { id: 'segment:orders' } }, not ${shown(models)}`)
  const { store } = options
  if (store !== undefined && typeof store !== 'string') throw argument(`store must be a configuration such as 'sqlite:keymill.db', not ${shown(store)}`)
  let mill = mills.get(store)
  if (mill === undefined) {
    mill = new ApplicationMill(() => store ?? storeOfVariable("keymill(models, { store: 'mysql://…' })"), store !== undefined)
    mills.set(store, mill)
  }
  const own = mill
  return (client: Client) => {
    const ids = new Ids(client, models, own)
    const creating = async (call: Call) => call.query(await ids.filled(call))
    const query = { $allModels: { create: creating, createMany: creating, createManyAndReturn: creating, update: creating, upsert: creating } }
    return client.$extends({ name: 'keymill', query })
  }
}

/** The database of DATABASE_URL; `call` names it otherwise. @internal */
export function storeOfVariable(call: string): string {
  const url = process.env.DATABASE_URL
  if (url === undefined || url === '') {
    throw new KeymillError('INVALID_CONFIG', `no mill is named, and DATABASE_URL is not set; write ${call}, or use(open('mysql://…'))`)
  }
  return storeOf(url)
}

const AS: Record<string, As> = { BigInt: 'bigint', Int: 'number', String: 'string' }
const MOST_INT = 2 ** 31 - 1

interface Filled {
  readonly model: string
  readonly name: string
  readonly ids: FieldIds
  readonly key: ((data: any) => Key) | undefined
}
/** What is looked at in each row of a model. */
interface Shape {
  readonly filled: Filled[]
  /** Its fields that are other models. */
  readonly relations: { readonly field: string; readonly shape: Shape }[]
}
/** The rows of a call that ids are written to. */
type Places = Map<Filled, any[]>

/** The ids of a client's models. */
class Ids {
  readonly #client: Client
  readonly #shapes = new Map<string, Shape>()

  constructor(client: Client, given: PrismaModels, mill: ApplicationMill) {
    const models = client._runtimeDataModel?.models
    const schema = client._engineConfig?.inlineSchema
    if (models === undefined || typeof schema !== 'string' || Object.keys(models).length === 0) {
      throw new KeymillError('INVALID_CONFIG', 'keymill/prisma cannot see the models of this client, so it could not set ids in nested creates; use Prisma 7, and $extends of a PrismaClient itself')
    }
    this.#client = client
    for (const name of Object.keys(models)) this.#shapes.set(name, { filled: [], relations: [] })
    for (const [name, model] of Object.entries(models)) {
      for (const { name: field, kind, type } of model.fields) {
        const shape = kind === 'object' ? this.#shapes.get(type) : undefined
        if (shape !== undefined) this.#shapes.get(name)!.relations.push({ field, shape })
      }
    }
    const isSqlite = client._engineConfig?.activeProvider === 'sqlite'
    for (const [name, fields] of Object.entries(given)) {
      const model = models[name]
      if (model === undefined) throw new KeymillError('INVALID_CONFIG', `the schema has no model ${shortened(name)}; it has ${Object.keys(models).join(', ')}`)
      this.#shapes.get(name)!.filled.push(...Object.entries(fields).map(([field, id]) => filledOf(mill, name, model, field, id, schema, isSqlite)))
    }
    checkFields([...this.#shapes.values()].flatMap(({ filled }) => filled.map(({ ids }) => ids.field)))
  }

  /** The arguments of a call with ids in them; what the program gave is not changed. */
  async filled({ model: name, operation, args, __internalParams: internal }: Call): Promise<unknown> {
    const places: Places = new Map()
    const model = this.#shapes.get(name)!
    let changed = args
    if (operation === 'upsert') changed = { ...args, create: this.#create(model, args?.create, places), update: this.#update(model, args?.update, places) }
    else if (operation === 'update') changed = { ...args, data: this.#update(model, args?.data, places) }
    else changed = { ...args, data: this.#rows(model, args?.data, places) }
    if (places.size === 0) return args
    // Inside of an interactive transaction its connection is asked: a pool may have no other that is free.
    const transaction = internal?.transaction
    const client = transaction?.kind === 'itx' ? (this.#client._createItxClient?.(transaction) ?? this.#client) : this.#client
    await Promise.all([...places].map(([filled, rows]) => this.#fill(client, filled, rows)))
    return changed
  }

  #fill(client: Client, { model, name, ids, key }: Filled, rows: any[]): Promise<void> | void {
    const highest = () => highestOf(client, model, name)
    if (key !== undefined || rows.length === 1) {
      const each = rows.map((row) => {
        const by = key?.(row)
        const id = ids.now(by)
        if (id === undefined) return ids.later(highest, by).then((late) => void (row[name] = late))
        row[name] = id
      })
      return Promise.all(each).then(() => undefined)
    }
    return ids.take(rows.length, highest).then((found) => rows.forEach((row, at) => (row[name] = found[at])))
  }

  #rows(model: Shape, data: unknown, places: Places): unknown {
    return Array.isArray(data) ? data.map((row) => this.#create(model, row, places)) : this.#create(model, data, places)
  }

  /** A row that is created. */
  #create(model: Shape, data: unknown, places: Places): unknown {
    // Prisma creates a row of defaults alone where there is no data.
    const row: any = { ...this.#object(model, data ?? {}, places) }
    for (const filled of model.filled) {
      const value = row[filled.name]
      // Prisma.skip is an object, and says that the field is not set.
      if (value === undefined || (typeof value === 'object' && value !== null)) {
        const rows = places.get(filled)
        if (rows === undefined) places.set(filled, [row])
        else rows.push(row)
      }
    }
    return row
  }

  /** A row that is changed. */
  #update(model: Shape, data: unknown, places: Places): unknown {
    return this.#object(model, data, places)
  }

  /** What is written to the relations of a row. */
  #object(model: Shape, data: unknown, places: Places): any {
    if (typeof data !== 'object' || data === null) return data
    let copy: any
    for (const { field, shape } of model.relations) {
      const nested = (data as any)[field]
      if (typeof nested !== 'object' || nested === null) continue
      const changed = this.#nested(shape, nested, places)
      if (changed !== nested) (copy ??= { ...data })[field] = changed
    }
    return copy ?? data
  }

  #nested(model: Shape, nested: any, places: Places): unknown {
    const copy: any = {}
    const each = (verb: string, change: (one: any) => unknown) => {
      const given = nested[verb]
      if (typeof given !== 'object' || given === null) return
      copy[verb] = Array.isArray(given) ? given.map(change) : change(given)
    }
    each('create', (one) => this.#create(model, one, places))
    each('createMany', (one) => ({ ...one, data: this.#rows(model, one?.data, places) }))
    each('connectOrCreate', (one) => ({ ...one, create: this.#create(model, one?.create, places) }))
    each('upsert', (one) => ({ ...one, create: this.#create(model, one?.create, places), update: this.#update(model, one?.update, places) }))
    // `{ where, data }`, or of a single row the data itself.
    each('update', (one) => (one?.data === undefined ? this.#update(model, one, places) : { ...one, data: this.#update(model, one.data, places) }))
    return Object.keys(copy).length === 0 ? nested : { ...nested, ...copy }
  }
}

function shortened(name: string): string {
  return name.slice(0, 40)
}

function filledOf(mill: ApplicationMill, name: string, { dbName, fields }: Model, field: string, id: PrismaId, schema: string, isSqlite: boolean): Filled {
  const where = `${name}.${shortened(field)}`
  const known = fields.find((one) => one.name === field)
  if (known === undefined) throw new KeymillError('INVALID_CONFIG', `${where}: the model has no such field; it has ${fields.map((one) => one.name).join(', ')}`)
  const as = known.kind === 'scalar' ? AS[known.type] : undefined
  if (as === undefined) throw new KeymillError('INVALID_CONFIG', `${where} is a ${known.type}; ids are a BigInt, an Int or a String`)
  const { spec, key } = typeof id === 'string' ? { spec: id, key: undefined } : id
  if (typeof spec !== 'string') throw new KeymillError('INVALID_CONFIG', `${where}: a spec must be a string such as 'segment:orders', not ${shown(spec)}`)
  const { line, isId } = declaredIn(schema, name, field)
  if (/@default\(\s*autoincrement\(\)/.test(line)) {
    throw new KeymillError('INVALID_CONFIG', `${where} has @default(autoincrement()), by which the database numbers rows that come without an id; write @default(dbgenerated())`)
  }
  if (isSqlite && known.type === 'Int' && isId) {
    throw new KeymillError('INVALID_CONFIG', `${where} is an Int, and SQLite numbers an INTEGER PRIMARY KEY by itself where a row comes without an id; write BigInt`)
  }
  const table = dbName ?? name
  const made: Field = { where, spec: tableSpec(spec, table), as, table, isText: as === 'string', ...(as === 'number' && { most: MOST_INT }), ...(key !== undefined && { hasKey: true }) }
  return { model: name, name: field, ids: new FieldIds(mill, made), key }
}

/** The line of a field in the schema, without its comment; and whether the field alone is the model's key. */
function declaredIn(schema: string, model: string, field: string): { line: string; isId: boolean } {
  const lines = schema.split('\n').map((line) => line.replace(/\/\/.*/, '').trim())
  const begin = lines.findIndex((line) => new RegExp(`^model\\s+${model}\\s*\\{`).test(line))
  const block = lines.slice(begin + 1, lines.indexOf('}', begin))
  const line = block.find((line) => line.split(/\s/)[0] === field) ?? ''
  const key = block.map((line) => /^@@id\(\s*(?:fields:\s*)?\[([^\]]*)\]/.exec(line)?.[1]).find((fields) => fields !== undefined)
  return { line, isId: /@id\b/.test(line) || key?.split('(')[0].trim() === field }
}

async function highestOf(client: Client, model: string, field: string): Promise<bigint> {
  const delegate = (client as any)[model[0].toLowerCase() + model.slice(1)]
  const found = await delegate.aggregate({ _max: { [field]: true } })
  const text = String(found._max[field] ?? 0)
  return /^\d+$/.test(text) ? BigInt(text) : 0n
}
