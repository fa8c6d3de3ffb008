// Sources that are declared before a mill is open. They are functions, because models call one for a default.
import type { Business } from './business'
import { variables } from './environment'
import { argument, KeymillError, shown } from './error'
import { Mill, written, type SourceOptions } from './mill'
import { native, type SourceStats } from './native'
import type { Key } from './router'
import { Serial, type AnySource, type Parts } from './source'

/** Options of a lazy source: the options of the source, and what its ids are given as. */
export type LazyOptions<As extends string> = SourceOptions & { as?: As }

/** What lazy sources of every kind have. */
interface Lazily {
  /** What it was declared by. */
  readonly spec: string
  /** An id as its texts are written. */
  textOf(id: bigint | number): string
  /** Takes an id apart. */
  parse(id: bigint | number | string): Parts
  /** The source's figures in the present mill. */
  stats(): SourceStats
  /** What the source is in the present mill, every default filled in. */
  readonly settings: Record<string, string>
  toString(): string
}

/** A source that is declared before a mill is open. Called, it gives the next id; whatever it is called with is ignored. */
export interface LazySource<T> extends Lazily, Iterable<T>, AsyncIterable<T> {
  (): T
  /** The next id. Only a cold or starved source waits, and then it **blocks the thread**; `nextAsync` does not. */
  next(): T
  /** The next id; never blocks the event loop. */
  nextAsync(): Promise<T>
  /** The next id if one is in memory, else `null`; never waits. */
  tryNext(): T | null
  /** `count` ids: all of them, or an error. */
  take(count: number): T[]
  /** `count` ids: all of them, or a rejection. */
  takeAsync(count: number): Promise<T[]>
  /** Fills an array with ids: all of it, or none and an error. */
  fill<A extends BigUint64Array | BigInt64Array>(array: A): A
  /** The next id as text, as the source gives it. */
  nextText(): string
  nextTextAsync(): Promise<string>
  takeText(count: number): string[]
  takeTextAsync(count: number): Promise<string[]>
  /** A handle of the source in the present mill, which it stays with. */
  handle(): AnySource<bigint> | AnySource<number> | AnySource<string>
  /** The source in the present mill, which it stays with. */
  source(): AnySource<bigint> | AnySource<number> | AnySource<string>
}

/** Business ids that are declared before a mill is open: the verbs take a key. Called without one, it throws. */
export interface LazyBusiness<T> extends Lazily {
  (key: Key): T
  /** The next id for a key. */
  next(key: Key): T
  /** The next id for a key; never blocks the event loop. */
  nextAsync(key: Key): Promise<T>
  /** The next id for a key if one is in memory, else `null`; never waits. */
  tryNext(key: Key): T | null
  /** `count` ids for a key: all of them, or an error. */
  take(key: Key, count: number): T[]
  /** `count` ids for a key: all of them, or a rejection. */
  takeAsync(key: Key, count: number): Promise<T[]>
  /** The next id for a key as text, as the source gives it. */
  nextText(key: Key): string
  nextTextAsync(key: Key): Promise<string>
  takeText(key: Key, count: number): string[]
  /** The source in the present mill, which it stays with. */
  source(): Business
}

let word: Uint32Array | null | undefined
/** Rises when another mill is shared, in any thread, and when the shared one is closed. @internal */
export function generation(): number {
  if (word === undefined) {
    const buffer = native.shareWord()
    word = buffer === null ? null : new Uint32Array(buffer)
  }
  return word === null ? native.shareGeneration() : word[0]
}

/** The mill that this thread uses, the shared one or the default one, and the generation it was found at. */
let present: { mill: Mill; at: number; which: 'shared' | 'default' } | undefined
/** The default mill, once it was needed. */
let opened: Mill | undefined

/**
 * Makes this the mill that lazy sources of all threads take from: their next ids come from it, also where they came from another one
 * before. It stays the caller's to close; while a closed one is shared, they throw `CLOSED`. `null`: the default mill again.
 */
export function use(mill: Mill | null): void {
  if (mill !== null && !(mill instanceof Mill)) throw argument(`use takes a mill of open(), or null, not ${shown(mill)}`)
  if (mill === null && opened?.closed === true) opened = undefined
  const at = Mill.share(mill ?? undefined)
  present = mill === null ? undefined : { mill, at, which: 'shared' }
}

/** The mill that lazy sources take from: the mill of `use`, in every thread, else the default mill (`open()`), which is opened once. */
export function shared(): Mill {
  return found('the shared mill').mill
}

/** Whether the program has named its mill: by `use`, or by `KEYMILL_CONFIG`. @internal */
export function isMillNamed(): boolean {
  return native.isMillNamed(variables())
}

function found(what: string): NonNullable<typeof present> {
  const at = generation()
  if (present?.at === at) return present
  const guest = native.sharedMill()
  if (guest !== null) present = { mill: Mill.of(guest), at, which: 'shared' }
  else present = { mill: (opened ??= defaultMill(what)), at, which: 'default' }
  return present
}

function defaultMill(what: string): Mill {
  try {
    return Mill.default()
  } catch (e) {
    if (!(e instanceof KeymillError)) throw e
    const named = variables()?.config === undefined ? '' : ' (KEYMILL_CONFIG=…)'
    throw new KeymillError(e.code, `${what}: no mill is shared, and the default mill${named} cannot be opened: ${e.message}; share a mill with use(mill)`, e.retryAfterMs)
  }
}

type AnyKind = AnySource<bigint> | AnySource<number> | AnySource<string> | Business

/** A spec, and the source that it names in the present mill. */
class Resolver {
  #at = 0
  #source: AnyKind | undefined

  constructor(
    readonly spec: string,
    readonly as: string | undefined,
  ) {}

  /** The source; its verbs are checked when they are called. */
  get source(): any {
    return this.#source !== undefined && this.#at === generation() ? this.#source : this.#resolve()
  }

  #resolve(): AnyKind {
    for (;;) {
      const at = generation()
      const { mill } = found(this.spec)
      try {
        this.#source = this.as === 'number' ? mill.source(this.spec, { as: 'number' }) : mill.source(this.spec)
        this.#at = at
        return this.#source
      } catch (e) {
        if (!(e instanceof KeymillError)) throw e
        if (e.code !== 'CLOSED') throw new KeymillError(e.code, `${this.spec}: ${e.message}`, e.retryAfterMs)
        this.judge(at, e)
      }
    }
  }

  /** Returns where a verb is to be asked again, because the mill of that generation was replaced or closed meanwhile; else throws. */
  judge(at: number, e: unknown): void {
    if (!(e instanceof KeymillError) || e.code !== 'CLOSED') throw e
    if (generation() !== at) return
    const remedy = 'share an open one with use(mill), or use(null) for the default mill'
    throw new KeymillError('CLOSED', `${this.spec}: the ${present?.which ?? 'shared'} mill was closed; ${remedy}`)
  }

  ask(verb: string, args: unknown[]): any {
    for (;;) {
      const at = generation()
      try {
        return this.source[verb](...args)
      } catch (e) {
        this.judge(at, e)
      }
    }
  }

  async askAsync(verb: string, args: unknown[]): Promise<any> {
    for (;;) {
      const at = generation()
      try {
        return await this.source[verb](...args)
      } catch (e) {
        this.judge(at, e)
      }
    }
  }
}

const KINDS = [undefined, 'bigint', 'number', 'string']

/**
 * A source that is declared before a mill is open, as a column's default is: nothing is opened or looked at before its first id, which
 * finds the mill of `use`, else opens the default mill. `{ as: 'string' }` gives ids as the texts of their source,
 * decimal unless `text` says otherwise, `{ as: 'number' }` as numbers where they fit.
 */
export function lazy(spec: `serial:${string}`, options?: SourceOptions): LazySource<string>
export function lazy(spec: `business:${string}`, options: LazyOptions<'string'> & { as: 'string' }): LazyBusiness<string>
export function lazy(spec: `business:${string}`, options?: LazyOptions<'bigint'>): LazyBusiness<bigint>
export function lazy(spec: string, options: LazyOptions<'string'> & { as: 'string' }): LazySource<string>
export function lazy(spec: string, options: LazyOptions<'number'> & { as: 'number' }): LazySource<number>
export function lazy(spec: string, options?: LazyOptions<'bigint'>): LazySource<bigint>
export function lazy(spec: string, options?: SourceOptions): unknown {
  const { as, text } = written(spec, options)
  if (!KINDS.includes(as as string)) {
    throw argument(`as must be 'bigint', 'number' or 'string', not ${typeof as === 'string' ? `'${as.slice(0, 40)}'` : shown(as)}`)
  }
  const resolver = new Resolver(text, as as string | undefined)
  // A serial number is a text already.
  const given: (id: any) => any = as === 'string' ? (id) => (typeof id === 'string' ? id : resolver.ask('textOf', [id])) : (id) => id
  const next = (key?: unknown): unknown => {
    for (;;) {
      const at = generation()
      try {
        return given(resolver.source.next(key))
      } catch (e) {
        resolver.judge(at, e)
      }
    }
  }
  const verbs = {
    next,
    nextAsync: async (key?: unknown) => given(await resolver.askAsync('nextAsync', [key])),
    tryNext: (key?: unknown) => {
      const id = resolver.ask('tryNext', [key])
      return id === null ? null : given(id)
    },
    take: (...args: unknown[]) => (as === 'string' ? resolver.ask('take', args).map(given) : resolver.ask('take', args)),
    takeAsync: async (...args: unknown[]) => {
      const ids = await resolver.askAsync('takeAsync', args)
      return as === 'string' ? ids.map(given) : ids
    },
    nextText: (...key: unknown[]) => resolver.ask('nextText', key),
    nextTextAsync: (...key: unknown[]) => resolver.askAsync('nextTextAsync', key),
    takeText: (...args: unknown[]) => resolver.ask('takeText', args),
    textOf: (id: unknown) => resolver.ask('textOf', [id]),
    parse: (id: unknown) => resolver.ask('parse', [id]),
    stats: () => resolver.ask('stats', []),
    source: () => resolver.source,
    spec: text,
    toString: () => `lazy ${text}`,
    [Symbol.for('nodejs.util.inspect.custom')]: () => `lazy ${text}`,
  }
  // Read when it is asked for, not when it is assigned.
  const settings = { get: () => resolver.source.settings, enumerable: true }
  if (/^business:/.test(text)) return Object.defineProperty(Object.assign((key?: unknown) => next(key), verbs), 'settings', settings)
  const ids: IterableIterator<unknown> = { next: () => ({ value: next(), done: false }), [Symbol.iterator]: () => ids }
  const later: AsyncIterableIterator<unknown> = {
    next: async () => ({ value: await verbs.nextAsync(), done: false }),
    [Symbol.asyncIterator]: () => later,
  }
  // What frameworks call a default with is not for us.
  const source = Object.assign(() => next(), verbs, {
    takeTextAsync: (...args: unknown[]) => resolver.askAsync('takeTextAsync', args),
    handle: () => resolver.ask('handle', []),
    fill: (array: unknown) => {
      if (resolver.source instanceof Serial) throw argument(`\`${text}\` hands out texts, which do not fit into an array of integers; use take`)
      return resolver.ask('fill', [array])
    },
    [Symbol.iterator]: () => ids,
    [Symbol.asyncIterator]: () => later,
  })
  return Object.defineProperty(source, 'settings', settings)
}
