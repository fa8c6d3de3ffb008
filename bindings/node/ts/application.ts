// What the modules for frameworks share: the mill that a model's ids come from, and ids that are taken without blocking the event loop.
import type { Business } from './business'
import { argument, KeymillError } from './error'
import { generation, isMillNamed, shared } from './lazy'
import { open, openAsync, type Mill } from './mill'
import type { Key } from './router'
import type { AnySource } from './source'

/** What a field's ids are given as. */
export type As = 'bigint' | 'number' | 'string'

/** A field of a model whose values are ids. */
export interface Field {
  /** As messages name it: `Order.id`. */
  readonly where: string
  readonly spec: string
  readonly as: As
  /** The highest number that the column holds; absent where it holds every id. */
  readonly most?: number
  /** The table. */
  readonly table: string
  /** The key of a business id comes with each row. */
  readonly hasKey?: boolean
  /** A column of texts, whose highest value says nothing about numbers. */
  readonly isText?: boolean
}

/** The mill of an application: the mill that the program has named, else a mill in the application's own database, opened at its first id. */
export class ApplicationMill {
  readonly #store: () => string
  readonly #isFixed: boolean
  #own: Promise<Mill> | undefined
  /** What was opened here, and ids come from the first: a synchronous call may come while another mill is being opened. */
  #opened: Mill[] = []
  #isClosed = false

  /** `store` answers with the configuration of a mill in the application's database; fixed: it comes before a mill that the program has named. */
  constructor(store: () => string, isFixed = false) {
    this.#store = store
    this.#isFixed = isFixed
  }

  /** The mill, opened here where no program has named one. Opening blocks the event loop. */
  millNow(): Mill {
    if (!this.#isFixed && isMillNamed()) return shared()
    this.#checkOpen()
    if (this.#opened.length === 0) this.#opened.push(open(this.#store()))
    return this.#opened[0]
  }

  #checkOpen(): void {
    if (this.#isClosed) throw new KeymillError('CLOSED', 'the mill was closed with its application')
  }

  async mill(): Promise<Mill> {
    if (!this.#isFixed && isMillNamed()) return shared()
    this.#checkOpen()
    if (this.#opened.length > 0) return this.#opened[0]
    this.#own ??= this.#open()
    return this.#own
  }

  async #open(): Promise<Mill> {
    try {
      const mill = await openAsync(this.#store())
      this.#opened.push(mill)
      return mill
    } catch (e) {
      this.#own = undefined
      throw e
    }
  }

  /** Closes the mill in the application's database; a mill that the program has named stays the program's to close. */
  async close(): Promise<void> {
    this.#isClosed = true
    await this.#own?.catch(() => undefined)
    this.#own = undefined
    await Promise.all(this.#opened.splice(0).map((mill) => mill.closeAsync()))
  }
}

/** What names a source by its table: in small letters, without schema and quotes, so that a table has one source however it is written. */
export function tableSpec(spec: string, table: string): string {
  const name = table.slice(table.lastIndexOf('.') + 1).replace(/[\s"`[\]]/g, '').toLowerCase()
  return spec.replaceAll('{table}', encodeURIComponent(name))
}

/** Refuses fields whose ids cannot be given, before the first row. No store is asked. */
export function checkFields(fields: Iterable<Field>): void {
  const mill = open('memory:')
  try {
    for (const field of fields) named(field, () => checkField(mill, field))
  } finally {
    mill.close()
  }
}

function checkField(mill: Mill, { spec, as, most, hasKey }: Field): void {
  const kind = spec.slice(0, spec.indexOf(':'))
  if (kind === 'business' && hasKey !== true) throw argument(`\`${spec}\` gives ids for a key; write { key: (row) => row.buyer }`)
  if (kind !== 'business' && hasKey === true) throw argument(`\`${spec}\` takes no key; leave { key } out, or write business:…`)
  if (kind === 'serial' && as !== 'string') throw argument(`\`${spec}\` gives texts, and the field is a ${as}; declare it as a string`)
  if (kind === 'business' && as === 'number') throw argument(`ids of \`${spec}\` do not fit a number; keep them in a column of texts, and write { as: 'string' }`)
  // Schemes of servers are not known to a mill in memory.
  const source = /[?&]scheme=/.test(spec) ? undefined : mill.source(spec)
  if (kind === 'segment' || source === undefined) return
  if (as === 'number' && kind === 'snowflake') mill.source(spec, { as: 'number' })
  if (most !== undefined && kind !== 'serial') throw argument(`ids of \`${spec}\` do not fit the column, whose highest number is ${most}; make it a BIGINT`)
}

/** Runs `work`; its errors name the field. */
function named<T>(field: Field, work: () => T): T {
  try {
    return work()
  } catch (e) {
    throw naming(field, e)
  }
}

function naming({ where }: Field, e: unknown): unknown {
  return e instanceof KeymillError ? new KeymillError(e.code, `${where}: ${e.message}`, e.retryAfterMs) : e
}

type Kept = AnySource<bigint | string> & Business
type Id = bigint | number | string

/** The ids of one field. */
export class FieldIds {
  readonly field: Field
  readonly #mill: ApplicationMill
  #at = 0
  #source: Kept | undefined
  #given: (id: bigint | string) => Id = (id) => id
  #resolving: Promise<Kept> | undefined

  constructor(mill: ApplicationMill, field: Field) {
    this.#mill = mill
    this.field = field
  }

  /** An id from memory; `undefined` where it has to be waited for, by `later`. */
  now(key?: Key): Id | undefined {
    if (this.#source === undefined || this.#at !== generation()) return undefined
    try {
      const id = this.#source.tryNext(key as Key)
      return id === null ? undefined : this.#given(id)
    } catch (e) {
      if (isClosed(e)) return undefined
      throw naming(this.field, e)
    }
  }

  /** An id. `highest` asks the table for its highest key, before the first id of a mill. */
  later(highest: Highest, key?: Key): Promise<Id> {
    return this.#asked(highest, async (source) => this.#given(await source.nextAsync(key as Key)))
  }

  /** An id, for a framework that asks for it synchronously. It blocks the event loop where the id has to wait, and asks no table. */
  wait(): Id {
    try {
      const at = generation()
      const source = this.#mill.millNow().source(this.field.spec) as unknown as Kept
      this.#given = giver(source, this.field)
      this.#source = source
      this.#at = at
      return this.#given((source as AnySource<bigint | string>).next())
    } catch (e) {
      throw naming(this.field, e)
    }
  }

  /** `count` ids. */
  take(count: number, highest: Highest): Promise<Id[]> {
    return this.#asked(highest, async (source) => (await (source as AnySource<bigint | string>).takeAsync(count)).map(this.#given))
  }

  async #asked<T>(highest: Highest, work: (source: Kept) => Promise<T>): Promise<T> {
    for (;;) {
      const at = generation()
      try {
        return await work(await this.#resolved(highest))
      } catch (e) {
        // Another mill was shared meanwhile.
        if (isClosed(e) && generation() !== at) continue
        throw naming(this.field, e)
      }
    }
  }

  /** The source in the present mill. All who wait for it wait for one question to the table; where it fails in a transaction of another, they ask anew. */
  #resolved(highest: Highest): Promise<Kept> | Kept {
    if (this.#source !== undefined && this.#at === generation()) return this.#source
    if (this.#resolving !== undefined) return this.#resolving.catch((e) => (e instanceof KeymillError ? Promise.reject(e) : this.#resolve(highest)))
    const asking = this.#resolve(highest).finally(() => (this.#resolving = undefined))
    this.#resolving = asking
    return asking
  }

  async #resolve(highest: Highest): Promise<Kept> {
    const at = generation()
    const source = (await this.#mill.mill()).source(this.field.spec) as unknown as Kept
    if (this.field.spec.startsWith('segment:') && this.field.isText !== true) {
      const found = await answered(highest(), this.field.table, source.settings.deadline)
      const refusal = found > 0n ? await source.refusalOfKeys(this.field.table, found) : null
      if (refusal !== null) throw new KeymillError('STORE_REFUSED', refusal)
    }
    this.#given = giver(source, this.field)
    this.#source = source
    this.#at = at
    return source
  }
}

/** The answer of the table. Another transaction may hold its lock, and wait for this insert. */
function answered(answer: Promise<bigint>, table: string, deadline: string | undefined): Promise<bigint> {
  const [, number = '3', unit = 's'] = /^(\d+)(ms|s|m|h)$/.exec(deadline ?? '') ?? []
  const ms = Number(number) * { ms: 1, s: 1_000, m: 60_000, h: 3_600_000 }[unit as 'ms']
  return new Promise((resolve, reject) => {
    const late = () => reject(new KeymillError('DEADLINE', `the highest key of the table ${table} was not read within ${number}${unit}; a transaction may hold a lock on the table`))
    const timer = setTimeout(late, ms)
    answer.then(resolve, reject).finally(() => clearTimeout(timer))
  })
}

/** Asks a table for its highest key; 0: it has none, or none that is a number. */
export type Highest = () => Promise<bigint>

function isClosed(e: unknown): boolean {
  return e instanceof KeymillError && e.code === 'CLOSED'
}

/** How ids are given. */
function giver(source: Kept, { as, most }: Field): (id: bigint | string) => Id {
  if (as === 'string') {
    const { text, prefix } = source.settings
    const isPlain = (text === undefined || text === 'decimal') && (prefix === undefined || prefix === '')
    return (id) => (typeof id === 'string' ? id : isPlain ? id.toString() : source.textOf(id))
  }
  if (as === 'bigint' && most === undefined) return (id) => id
  const limit = most ?? (as === 'number' ? Number.MAX_SAFE_INTEGER : Infinity)
  const checked = (id: bigint | string): bigint => {
    if ((id as bigint) <= limit) return id as bigint
    throw new KeymillError('NUMBER_OVERFLOW', `the id ${id} is higher than ${limit}, the highest that the field holds; make it a BIGINT that is read as text or bigint`)
  }
  return as === 'number' ? (id) => Number(checked(id)) : checked
}
