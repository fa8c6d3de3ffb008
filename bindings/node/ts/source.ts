import { types } from 'node:util'

import { Cursor } from './cursor'
import { argument, asked, shown, translated } from './error'
import { MillState } from './state'
import { native, type BatchBox, type SourceBox, type SourceStats } from './native'
import { Patience, sleep } from './wait'

/** What an id or a serial number is made of; parts that its kind does not have are absent. */
export interface Parts {
  /** When a snowflake was made. */
  time?: Date
  /** A snowflake's worker. */
  worker?: number
  /** The data centre of a snowflake whose source was given its worker as `DC+N`. */
  datacenter?: number
  /** A snowflake's sequence. */
  sequence?: number
  /** A serial number's date part. */
  date?: string
  /** The gene of a business id: its virtual node. */
  gene?: number
  /** A segment's id, or the number of a serial or of a business id. */
  number?: bigint
}

/** Takes an id of a source apart: a text, or with `isNumber` the digits of a number. @internal */
export function partsOf(source: SourceBox, id: unknown, isNumber = typeof id !== 'string'): Parts {
  const ok = typeof id === 'bigint' || typeof id === 'string' || (typeof id === 'number' && Number.isSafeInteger(id))
  if (!ok) throw argument(`parse takes a bigint, a string or a safe integer, not ${shown(id)}`)
  try {
    const parts: Parts = {}
    for (const [name, value] of native.parse(source, String(id), isNumber)) {
      if (name === 'time') parts.time = new Date(value)
      else if (name === 'number') parts.number = BigInt(value)
      else if (name === 'date') parts.date = value
      else if (name === 'worker' || name === 'sequence' || name === 'datacenter' || name === 'gene') parts[name] = Number(value)
    }
    return parts
  } catch (e) {
    throw translated(e)
  }
}

/** A source's figures. @internal */
export function statsOf(source: SourceBox): SourceStats {
  const camel = (name: string) => name.replace(/_(.)/g, (_, letter: string) => letter.toUpperCase())
  return Object.fromEntries(asked(() => native.stats(source)).map(([name, value]) => [camel(name), value])) as unknown as SourceStats
}

/** An id as its source writes it. @internal */
export function textOf(source: SourceBox, id: unknown): string {
  const ok = typeof id === 'bigint' ? id >= 0n && id < 1n << 64n : typeof id === 'number' && Number.isSafeInteger(id) && id >= 0
  if (!ok) throw argument(`textOf takes an id: a bigint of 64 bits or a safe integer, not ${shown(id)}`)
  try {
    return native.textOf(source, BigInt(id as bigint | number))
  } catch (e) {
    throw translated(e)
  }
}

/** What a source hands out as text: a serial number is one already. */
function written(source: SourceBox, id: unknown): string {
  return typeof id === 'string' ? id : textOf(source, id)
}

/** The most ids of one list: V8 ends the process, not the call, when its heap is full. */
const MOST = 2 ** 22

/** @internal */
export function counted(count: unknown): number {
  if (typeof count !== 'number' || !Number.isInteger(count) || count < 0) {
    throw argument(`a count must be a whole number from 0 up, not ${shown(count)}`)
  }
  if (count > MOST) throw argument(`${count} ids are too many for one list; take at most ${MOST} at a time, or fill an array`)
  return count
}

/** @internal */
export function room(count: number): BigUint64Array {
  try {
    return new BigUint64Array(count)
  } catch {
    throw argument(`${count} ids do not fit into memory; take them in parts`)
  }
}

/**
 * A named generator inside a mill, with ids of type `T`: `bigint`, `number` (`{ as: 'number' }`) or, for serial numbers,
 * `string`.
 */
export abstract class AnySource<T> implements Iterable<T>, AsyncIterable<T> {
  /** @internal */
  protected readonly state: MillState
  /** @internal */
  protected readonly cursor: Cursor

  protected constructor(state: MillState, cursor: Cursor) {
    if (!(state instanceof MillState)) throw argument("a source comes from a mill, as open().segment('orders'), not from new")
    this.state = state
    this.cursor = cursor
  }

  /** `segment:orders`: kind and name. */
  get label(): string {
    return this.cursor.facts.label
  }

  /** The label. */
  toString(): string {
    return this.label
  }

  /** What the source is, every default filled in: scheme, table, step, layout … */
  get settings(): Record<string, string> {
    return Object.fromEntries(this.cursor.facts.settings)
  }

  /**
   * The next id, from memory. Only a cold or starved source waits, and then it **blocks the thread**, at most the
   * source's `deadline`; `nextAsync` does not.
   */
  abstract next(): T

  /** Why ids would be keys that a table has; `null` where none would. `highest` is its highest key, read before. @internal */
  async refusalOfKeys(table: string, highest: bigint): Promise<string | null> {
    this.state.check()
    const question = asked(() => native.keysQuestion(this.cursor.source, table, highest))
    await native.askKeys(question)
    return asked(() => native.keysAnswer(question))
  }

  /** An id of the block, or else of the core, or the pause after which to ask again. @internal */
  protected abstract attempt(waited: number, registered?: boolean): { id: T } | number

  /** @internal */
  protected abstract claimed(count: number): T[]
  /** @internal */
  protected abstract begun(count: number): { batch: BatchBox; finish: () => T[] }

  /** @internal */
  protected waitFor(): T {
    const patience = new Patience()
    for (;;) {
      this.state.check()
      const answer = this.attempt(patience.waited)
      if (typeof answer === 'object') return answer.id
      patience.begin()
      sleep(answer)
    }
  }

  /** The next id; never blocks the event loop. Of several calls that wait, the one made first gets the first id. */
  async nextAsync(): Promise<T> {
    const patience = new Patience()
    const { queue } = this.cursor
    if (queue.isEmpty()) {
      this.state.check()
      const answer = this.attempt(0)
      if (typeof answer === 'object') return answer.id
    }
    patience.begin()
    const { id } = await queue.id(() => {
      this.state.check()
      return this.attempt(patience.waited, true)
    })
    return id
  }

  /** The next id if one is in memory, else `null`; never waits. */
  tryNext(): T | null {
    this.state.check()
    const answer = this.attempt(-1)
    return typeof answer === 'object' ? answer.id : null
  }

  /** `count` ids: all of them, or an error. Waits as `next` does. */
  abstract take(count: number): T[]

  /** `count` ids: all of them, or a rejection. Never blocks the event loop. */
  async takeAsync(count: number): Promise<T[]> {
    const wanted = counted(count)
    this.state.check()
    const { queue } = this.cursor
    const ids = queue.isEmpty() ? this.claimed(wanted) : []
    if (ids.length === wanted) return ids
    this.cursor.batches += 1
    try {
      const { batch, finish } = this.begun(wanted - ids.length)
      await queue.batch(batch, () => {
        this.state.check()
        // What is left of a block that a call before this one leased would come after the batch, and is lower.
        if (this.cursor.left > 0) this.cursor.giveBack()
      })
      return ids.concat(finish())
    } catch (e) {
      throw translated(e)
    } finally {
      this.cursor.batches -= 1
    }
  }

  /**
   * The next id as text: in the form that `text` and `prefix` of its source say, decimal digits unless they are given. A serial number is a
   * text already. Waits as `next` does.
   */
  nextText(): string {
    return written(this.cursor.source, this.next())
  }

  /** The next id as text; never blocks the event loop. */
  async nextTextAsync(): Promise<string> {
    return written(this.cursor.source, await this.nextAsync())
  }

  /** `count` ids as texts: all of them, or an error. */
  takeText(count: number): string[] {
    return this.take(count).map((id) => written(this.cursor.source, id))
  }

  /** `count` ids as texts; never blocks the event loop. */
  async takeTextAsync(count: number): Promise<string[]> {
    return (await this.takeAsync(count)).map((id) => written(this.cursor.source, id))
  }

  /** An id of this source as its texts are written. */
  textOf(id: bigint | number): string {
    return textOf(this.cursor.source, id)
  }

  /** Takes an id, or a text, of this source apart. */
  parse(id: T | bigint | number | string): Parts {
    this.state.check()
    return partsOf(this.cursor.source, id)
  }

  /** This source's figures; after `close` the last ones. */
  stats(): SourceStats {
    return statsOf(this.cursor.source)
  }

  /** A cursor of its own: the same verbs; ids are unique and rise within the handle. */
  handle(): this {
    this.state.check()
    const kind = this.constructor as unknown as new (state: MillState, cursor: Cursor) => this
    return asked(() => {
      const cursor = new Cursor(native.copySource(this.cursor.source))
      const handle = new kind(this.state, cursor)
      this.state.lends(cursor, handle)
      return handle
    })
  }

  /** Ids without end. */
  [Symbol.iterator](): IterableIterator<T> {
    const ids: IterableIterator<T> = {
      next: () => ({ value: this.next(), done: false }),
      [Symbol.iterator]: () => ids,
    }
    return ids
  }

  /** Ids without end; never blocks the event loop. */
  [Symbol.asyncIterator](): AsyncIterableIterator<T> {
    const ids: AsyncIterableIterator<T> = {
      next: async () => ({ value: await this.nextAsync(), done: false }),
      [Symbol.asyncIterator]: () => ids,
    }
    return ids
  }
}

/** Only mills and handles make sources. @internal */
export function made<S>(kind: { prototype: S }, state: MillState, cursor: Cursor): S {
  return new (kind as unknown as new (state: MillState, cursor: Cursor) => S)(state, cursor)
}

// What `console.log` shows: the label, not the cursor's fields.
Object.defineProperty(AnySource.prototype, Symbol.for('nodejs.util.inspect.custom'), {
  value(this: AnySource<unknown>) {
    return `${this.constructor.name} ${this.label}`
  },
})

/** What sources of numbers share. */
abstract class Numbers<T extends bigint | number> extends AnySource<T> {
  /**
   * Fills an array with ids: all of it, or none and an error. The fastest way to many. Waits as `next` does. Answers with
   * the array.
   */
  fill<A extends BigUint64Array | BigInt64Array>(array: A): A {
    const tag = ArrayBuffer.isView(array) ? (array as { [Symbol.toStringTag]?: string })[Symbol.toStringTag] : undefined
    if (tag !== 'BigUint64Array' && tag !== 'BigInt64Array') {
      throw argument(`fill takes a BigUint64Array or a BigInt64Array, not ${tag ?? shown(array)}`)
    }
    this.state.check()
    // A detached one, too, has no elements.
    if (array.length === 0) return array
    if (types.isArrayBuffer(array.buffer)) {
      this.fillAll(new BigUint64Array(array.buffer, array.byteOffset, array.length))
    } else {
      // Other threads may read shared memory while it is being written.
      const ids = room(array.length)
      this.fillAll(ids)
      new BigUint64Array(array.buffer, array.byteOffset, array.length).set(ids)
    }
    return array
  }

  override take(count: number): T[] {
    const ids = room(counted(count))
    this.state.check()
    this.fillAll(ids)
    return this.listed(ids)
  }

  /** @internal */
  protected abstract listed(ids: BigUint64Array): T[]

  /** @internal */
  protected fillAll(out: BigUint64Array): void {
    const cursor = this.cursor
    const own = Math.min(cursor.left, out.length)
    try {
      if (own < out.length) {
        const rest = own === 0 ? out : out.subarray(own)
        const batch = native.fillNow(cursor.source, rest)
        if (batch !== null) {
          for (let wait; (wait = native.poll(batch)) > 0; ) sleep(wait)
          native.writeBatch(batch, rest)
        }
      }
    } catch (e) {
      throw translated(e)
    }
    for (let i = 0; i < own; i++) out[i] = cursor.base + BigInt(cursor.at + i)
    cursor.at += own
  }

  /** @internal */
  protected attempt(waited: number, registered?: boolean): { id: T } | number {
    const id = this.cursor.tryId(waited, registered)
    return typeof id === 'bigint' ? { id: this.made(id) } : id
  }

  /** @internal */
  protected abstract made(id: bigint): T

  /** @internal */
  protected claimed(count: number): T[] {
    const cursor = this.cursor
    const own = Math.min(cursor.left, count)
    const ids = new Array<T>(own)
    for (let i = 0; i < own; i++) ids[i] = this.made(cursor.base + BigInt(cursor.at + i))
    cursor.at += own
    return ids
  }

  /** @internal */
  protected begun(count: number): { batch: BatchBox; finish: () => T[] } {
    const out = room(count)
    const batch = native.ask(this.cursor.source, count)
    const finish = (): T[] => {
      native.writeBatch(batch, out)
      return this.listed(out)
    }
    return { batch, finish }
  }
}

/** A source of `bigint` ids: segments and snowflakes. */
export class Source extends Numbers<bigint> {
  override next(): bigint {
    const cursor = this.cursor
    const at = cursor.at
    if (at < cursor.end && cursor.word[0] === cursor.leasedAt && cursor.contexts[0] === cursor.contextsAt && this.state.open) {
      cursor.at = at + 1
      return cursor.base + BigInt(at)
    }
    if (cursor.contexts[0] === cursor.sharedAt && this.state.open) {
      const id = cursor.direct()
      if (id !== undefined) return id
    }
    return this.waitFor()
  }

  override tryNext(): bigint | null {
    const cursor = this.cursor
    const at = cursor.at
    if (at < cursor.end && cursor.word[0] === cursor.leasedAt && cursor.contexts[0] === cursor.contextsAt && this.state.open) {
      cursor.at = at + 1
      return cursor.base + BigInt(at)
    }
    return super.tryNext()
  }

  /** @internal */
  protected override listed(ids: BigUint64Array): bigint[] {
    // Three times as fast as `Array.from`.
    const list = new Array<bigint>(ids.length)
    for (let i = 0; i < ids.length; i++) list[i] = ids[i]
    return list
  }

  /** @internal */
  protected override made(id: bigint): bigint {
    return id
  }
}

/** A source whose ids fit a `number`: a snowflake of `layout=js53`, opened with `{ as: 'number' }`. */
export class NumberSource extends Numbers<number> {
  readonly #direct = native.directNext(this.cursor.source, true)

  override next(): number {
    if (this.state.open) {
      const id = this.#direct?.()
      if (id !== undefined) return id
    }
    return this.waitFor()
  }

  /** @internal */
  protected override listed(ids: BigUint64Array): number[] {
    return Array.from(ids, Number)
  }

  /** @internal */
  protected override made(id: bigint): number {
    return Number(id)
  }
}

/** A source of serial numbers: texts of a date part and a number. */
export class Serial extends AnySource<string> {
  override next(): string {
    const cursor = this.cursor
    const at = cursor.at
    if (at < cursor.end && cursor.word[0] === cursor.leasedAt && cursor.contexts[0] === cursor.contextsAt && this.state.open) {
      cursor.at = at + 1
      return cursor.text(at)
    }
    return this.waitFor()
  }

  override take(count: number): string[] {
    const wanted = counted(count)
    this.state.check()
    const cursor = this.cursor
    const before = cursor.at
    const texts = this.claimed(wanted)
    if (texts.length === wanted) return texts
    try {
      const { batch, finish } = this.begun(wanted - texts.length)
      for (let wait; (wait = native.poll(batch)) > 0; ) sleep(wait)
      return texts.concat(finish())
    } catch (e) {
      // No other JavaScript ran: the block is as it was.
      cursor.at = before
      throw translated(e)
    }
  }

  /** @internal */
  protected override attempt(waited: number, registered?: boolean): { id: string } | number {
    const id = this.cursor.tryText(waited, registered)
    return typeof id === 'string' ? { id } : id
  }

  /** @internal */
  protected override claimed(count: number): string[] {
    const cursor = this.cursor
    const own = Math.min(cursor.left, count)
    const texts = new Array<string>(own)
    for (let i = 0; i < own; i++) texts[i] = cursor.text(cursor.at + i)
    cursor.at += own
    return texts
  }

  /** @internal */
  protected override begun(count: number): { batch: BatchBox; finish: () => string[] } {
    const batch = native.ask(this.cursor.source, count)
    return { batch, finish: () => native.batchTexts(batch).split('\n', count) }
  }
}
