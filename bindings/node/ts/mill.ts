/// <reference lib="esnext.disposable" preserve="true" />
import { Business } from './business'
import { cursorOf, opened } from './cursor'
import { variables } from './environment'
import { argument, asked, KeymillError, shown, translated } from './error'
import { MillState } from './state'
import { native, type MillBox } from './native'
import { Router } from './router'
import { made, NumberSource, Serial, Source } from './source'

/** Options of a source, by the names they have in a spec string; any option of the core may be given. */
export interface SourceOptions {
  [option: string]: string | number | bigint | undefined
}
/** Parameters of a database's driver; an object in it is named with a dot: `{ ssl: { ca } }` is `ssl.ca`. Functions and classes are never called. */
export interface DatabaseProperties {
  [name: string]: unknown
}
/** Options of a source of numbers. */
export type AsBigInt = SourceOptions & { as?: 'bigint' }
/** Options of a source whose ids are to be plain numbers: `layout: 'js53'` only. */
export type AsNumber = SourceOptions & { as: 'number' }

function named(what: string, value: unknown): string {
  if (typeof value !== 'string') throw argument(`${what} must be a string, not ${shown(value)}`)
  return whole(what, value)
}

/** On its way to Rust half a character would become U+FFFD, and two names one. */
function whole(what: string, text: string): string {
  if (!/\p{Surrogate}/u.test(text)) return text
  throw new KeymillError('INVALID_CONFIG', `${what} holds half of a surrogate pair, which is no character; write whole characters`)
}

function pairs(options: unknown): { as: unknown; pairs: [string, string][] } {
  if (options === undefined) return { as: undefined, pairs: [] }
  if (typeof options !== 'object' || options === null || Array.isArray(options)) {
    throw argument(`options must be an object such as { step: 1000 }, not ${shown(options)}`)
  }
  const { as, ...others } = options as Record<string, unknown>
  const found: [string, string][] = []
  for (const [name, value] of Object.entries(others)) {
    if (value === undefined) continue
    const plain = typeof value === 'string' || typeof value === 'bigint' || Number.isFinite(value)
    if (!plain) throw argument(`the option ${name} must be a string or a number, not ${shown(value)}`)
    found.push([whole('the name of an option', name), whole(`the option ${name}`, String(value))])
  }
  return { as, pairs: found }
}

/** A spec with options behind it. @internal */
export function written(spec: unknown, options: unknown): { as: unknown; text: string } {
  const text = named('a source', spec)
  const { as, pairs: extra } = pairs(options)
  if (extra.length === 0) return { as, text }
  const query = native.specString('', [], extra).slice(':?'.length)
  return { as, text: `${text}${text.includes('?') ? '&' : '?'}${query}` }
}

/** An engine that hands out ids: one configuration, one background thread, any number of sources. */
export class Mill {
  readonly #state: MillState

  private constructor(state: MillState) {
    if (!(state instanceof MillState)) throw argument("a mill is opened by open('sqlite:keymill.db') or openAsync, not by new")
    this.#state = state
  }

  /** @internal */
  static of(mill: MillBox): Mill {
    opened()
    return new Mill(new MillState(mill))
  }

  /** @internal */
  static default(): Mill {
    return asked(() => Mill.of(native.defaultMill(variables())))
  }

  /** @internal */
  static share(mill: Mill | undefined): number {
    return native.shareMill(mill === undefined ? undefined : mill.#state.box)
  }

  /** Whether `close` was called. */
  get closed(): boolean {
    return !this.#state.open
  }

  /** A source, named by one string: `segment:orders?step=1000`. Asking again gives the same source. */
  source(spec: `serial:${string}`, options?: SourceOptions): Serial
  source(spec: `business:${string}`, options?: SourceOptions): Business
  source(spec: string, options: AsNumber): NumberSource
  source(spec: string, options?: AsBigInt): Source
  source(spec: string, options?: SourceOptions): Source | NumberSource | Serial | Business {
    const { as, text } = written(spec, options)
    return this.#open(text, as)
  }

  /** Numbers from a store: `segment('orders', { step: 1000 })`. */
  segment(name: string, options?: AsBigInt): Source {
    return this.#sugar('segment', [named('the name', name)], options) as Source
  }

  /** Numbers made of time, worker and sequence: `snowflake('tx', { worker: 5 })`. */
  snowflake(name: string, options: AsNumber): NumberSource
  snowflake(name: string, options?: AsBigInt): Source
  snowflake(name: string, options?: SourceOptions): Source | NumberSource {
    return this.#sugar('snowflake', [named('the name', name)], options) as Source | NumberSource
  }

  /** Texts of a date and a number: `serial('cust_info', 'custid', { date: 'yyyyMMdd', number: '000000' })`. */
  serial(table: string, column: string, options?: SourceOptions): Serial {
    return this.#sugar('serial', [named('the table', table), named('the column', column)], options) as Serial
  }

  /** Ids that carry the gene of a key, and so their shard: `business('order', { counters: 1024, wide: 'on' })`. */
  business(name: string, options?: SourceOptions): Business {
    return this.#sugar('business', [named('the name', name)], options) as Business
  }

  #sugar(kind: string, name: string[], options: unknown): Source | NumberSource | Serial | Business {
    const { as, pairs: given } = pairs(options)
    return this.#open(native.specString(kind, name, given), as)
  }

  #open(spec: string, as: unknown): Source | NumberSource | Serial | Business {
    if (as === 'string') throw argument("a source gives texts by nextText() and takeText(n); as 'string' is for lazy, whose next() gives texts then")
    if (as !== undefined && as !== 'bigint' && as !== 'number') {
      throw argument(`as must be 'bigint' or 'number', not ${typeof as === 'string' ? `'${as.slice(0, 40)}'` : shown(as)}`)
    }
    try {
      const cursor = cursorOf(native.source(this.#state.mill, spec))
      this.#state.uses(cursor)
      const { kind, label, fitsNumber } = cursor.facts
      if (as === 'number' && !fitsNumber) {
        throw argument(`ids of \`${label}\` do not fit a number; only a snowflake of layout=js53 may say { as: 'number' }`)
      }
      if (kind === 'business') return made(Business, this.#state, cursor)
      if (kind === 'serial') return made(Serial, this.#state, cursor)
      return as === 'number' ? made(NumberSource, this.#state, cursor) : made(Source, this.#state, cursor)
    } catch (e) {
      throw translated(e)
    }
  }

  /**
   * The router whose table the store has under this name. The mill reads the table every 10 s, every second while a range moves. Asking
   * again gives the same router; the first time blocks the thread while the store is asked.
   */
  router(name: string): Router {
    const given = named('the name of a router', name)
    return asked(() => Router.of(native.millRouter(this.#state.mill, given)))
  }

  /** Every figure as Prometheus text; after `close` the last ones. */
  metrics(): string {
    return asked(() => this.#state.metrics)
  }

  /** What happened since the last call, a line each; at most the last 256 events are kept. After `close` the last ones. */
  events(): string[] {
    return asked(() => this.#state.events)
  }

  /**
   * Creates the tables these sources need where they are missing, as `keymill init` does, and answers with the statements;
   * with no source, keymill's own table. Blocks the thread while the store works; SQLite and memory need none.
   */
  init(...specs: string[]): string[] {
    for (const spec of specs) named('a source', spec)
    return asked(() => native.init(this.#state.mill, specs))
  }

  /** Sets the clock of a mill opened with `clock=manual`, for tests: milliseconds since 1970. */
  setClock(ms: number): void {
    this.#moveClock(ms, native.setClock)
  }

  /** Moves the clock of a mill opened with `clock=manual` forward, for tests. */
  advanceClock(ms: number): void {
    if (ms < 0) throw argument('a clock advances forward; use setClock')
    this.#moveClock(ms, native.advanceClock)
  }

  #moveClock(ms: number, move: (mill: MillBox, ms: number) => void): void {
    if (!Number.isSafeInteger(ms)) throw argument(`milliseconds must be a whole number, not ${shown(ms)}`)
    asked(() => move(this.#state.mill, ms))
  }

  /**
   * Closes for good: every later call of this mill and its sources but `metrics` and `stats` throws `CLOSED`, and waiting
   * promises are rejected with it. Other mills of this process that were opened by the same string stay open; the last one's close gives unused
   * numbers back to the store.
   */
  close(): void {
    this.#state.close()
  }

  /** `close` that does not block the event loop while the store takes numbers back. */
  closeAsync(): Promise<void> {
    return this.#state.closeAsync()
  }
}

export interface Mill {
  /** `close`, for `using`. */
  [Symbol.dispose](): void
  /** `closeAsync`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void>
}
// Older releases of Node 18 lack these symbols.
if (typeof Symbol.dispose === 'symbol') {
  Object.defineProperty(Mill.prototype, Symbol.dispose, {
    value(this: Mill) {
      this.close()
    },
  })
}
if (typeof Symbol.asyncDispose === 'symbol') {
  Object.defineProperty(Mill.prototype, Symbol.asyncDispose, {
    value(this: Mill) {
      return this.closeAsync()
    },
  })
}

function configured(config: unknown): string | undefined {
  return config === undefined ? undefined : named('a configuration', config)
}

/**
 * The configuration of a mill in the application's own database: `open(storeOf(process.env.DATABASE_URL))`. Nothing is opened
 * or asked. The string holds the password.
 *
 * `INVALID_CONFIG`: a parameter that says where, as whom or how encrypted, in a way that a mill cannot, by its name; or a
 * database that cannot be a store. No message holds a value. Other parameters are ignored and named by `ignored=`.
 */
export function storeOf(url: string, properties: DatabaseProperties = {}): string {
  if (typeof url !== 'string') throw argument('the URL must be a string, such as process.env.DATABASE_URL')
  if (typeof properties !== 'object' || properties === null) throw argument('properties must be an object such as { user: \'app\' }')
  const given: [string, string][] = []
  // No message holds a value: it may be a password.
  const flatten = (prefix: string, object: DatabaseProperties): void => {
    for (const [key, value] of Object.entries(object)) {
      const name = prefix + whole('the name of a property', key)
      if (value === undefined || value === null) continue
      if (typeof value === 'object' && Object.getPrototypeOf(value) === Object.prototype) {
        const inner = value as DatabaseProperties
        flatten(`${name}.`, inner)
        // Node's drivers encrypt and verify where there is an object, an empty one too, unless it says `false` itself.
        if (name === 'ssl') given.push(['ssl.rejectUnauthorized', String(inner.rejectUnauthorized !== false)])
      } else if (['string', 'number', 'bigint', 'boolean'].includes(typeof value)) given.push([name, whole(`the property ${name}`, String(value))])
      // No text: the core judges by the name whether that matters.
      else given.push([name, `\ufdd0${typeof value === 'object' ? value.constructor?.name : typeof value}`])
    }
  }
  flatten('', properties)
  return asked(() => native.storeOf(whole('the URL', url), given))
}

/**
 * Opens a mill: `sqlite:FILE`, `mysql://user:password@host:port/database`, `postgres://…`, `redis://…`, `memory:NAME`, `file:CONFIG.toml`; nothing: what
 * `KEYMILL_CONFIG` says, else `sqlite:keymill.db`. Nothing is connected until a source needs it. Openings of one string
 * share one mill in all workers of this process; `memory:` without a name is each opening's own.
 */
export function open(config?: string): Mill {
  const given = configured(config)
  return asked(() => Mill.of(native.openMill(given, variables())))
}

/** `open` off the event loop. */
export async function openAsync(config?: string): Promise<Mill> {
  const given = configured(config)
  try {
    const opening = native.opening(given, variables())
    await native.runOpening(opening)
    return Mill.of(native.opened(opening))
  } catch (e) {
    throw translated(e)
  }
}

