import { types } from 'node:util'

import type { Cursor } from './cursor'
import { argument, asked, translated } from './error'
import { MillState } from './state'
import { native, type BatchBox, type SourceStats } from './native'
import { gene, type Key } from './router'
import { counted, partsOf, room, statsOf, textOf, type Parts } from './source'
import { Patience, sleep } from './wait'

/**
 * Ids that carry the gene of a key: 16 bits that name a virtual node of the ring, so that the id alone says its shard. All ids
 * of one key have one gene, and they rise within the process. Opened with `wide: 'on'`, ids have 128 bits.
 */
export class Business {
  readonly #state: MillState
  readonly #cursor: Cursor
  /** The next id for a key, if one is in memory. */
  readonly #direct: (key: unknown) => bigint | undefined

  private constructor(state: MillState, cursor: Cursor) {
    if (!(state instanceof MillState)) throw argument("a source comes from a mill, as open().business('order'), not from new")
    this.#state = state
    this.#cursor = cursor
    this.#direct = native.directFor(cursor.source) ?? (() => undefined)
  }

  /** `business:order`: kind and name. */
  get label(): string {
    return this.#cursor.facts.label
  }

  /** The label. */
  toString(): string {
    return this.label
  }

  /** What the source is, every default filled in. */
  get settings(): Record<string, string> {
    return Object.fromEntries(this.#cursor.facts.settings)
  }

  /**
   * The next id for a key, from memory. Only a cold or starved source waits, and then it **blocks the thread**, at most the
   * source's `deadline`; `nextAsync` does not.
   */
  next(key: Key): bigint {
    if (this.#state.open) {
      const id = this.#direct(key)
      if (id !== undefined) return id
    }
    const virtual = gene(key)
    const patience = new Patience()
    for (;;) {
      const answer = this.#attempt(virtual, patience.waited)
      if (typeof answer === 'bigint') return answer
      patience.begin()
      sleep(answer)
    }
  }

  /** The next id for a key; never blocks the event loop. Of several calls for one key that wait, the first gets the first id. */
  async nextAsync(key: Key): Promise<bigint> {
    const virtual = gene(key)
    const patience = new Patience()
    const { queue } = this.#cursor
    if (queue.isEmpty(virtual)) {
      const answer = this.#attempt(virtual, 0)
      if (typeof answer === 'bigint') return answer
    }
    patience.begin()
    return queue.id(() => this.#attempt(virtual, patience.waited, true), virtual)
  }

  /** The next id for a key if one is in memory, else `null`; never waits. */
  tryNext(key: Key): bigint | null {
    const answer = this.#attempt(gene(key), -1)
    return typeof answer === 'bigint' ? answer : null
  }

  /** `count` ids for a key: all of them, or an error. The fast way to many. Waits as `next` does. */
  take(key: Key, count: number): bigint[] {
    const wanted = counted(count)
    const batch = this.#ask(gene(key), wanted)
    return asked(() => {
      for (let wait; (wait = native.poll(batch)) > 0; ) sleep(wait)
      return this.#listed(batch, wanted)
    })
  }

  /** `count` ids for a key: all of them, or a rejection. Never blocks the event loop. */
  async takeAsync(key: Key, count: number): Promise<bigint[]> {
    const wanted = counted(count)
    const virtual = gene(key)
    const batch = this.#ask(virtual, wanted)
    const { queue } = this.#cursor
    try {
      await queue.batch(batch, () => this.#state.check(), virtual)
      return this.#listed(batch, wanted)
    } catch (e) {
      throw translated(e)
    }
  }

  /** The next id for a key as text: in the form that `text` and `prefix` of its source say. Waits as `next` does. */
  nextText(key: Key): string {
    return this.textOf(this.next(key))
  }

  /** The next id for a key as text; never blocks the event loop. */
  async nextTextAsync(key: Key): Promise<string> {
    return this.textOf(await this.nextAsync(key))
  }

  /** `count` ids for a key as texts: all of them, or an error. */
  takeText(key: Key, count: number): string[] {
    return this.take(key, count).map((id) => this.textOf(id))
  }

  /** An id of this source as its texts are written. */
  textOf(id: bigint | number): string {
    return textOf(this.#cursor.source, id)
  }

  /**
   * Takes an id of this source apart: its gene and its number. Bytes are big-endian, 8 of them or 16 of a wide id. With `wide: 'on'` a
   * number that may be an id of 64 bits or another one of 128 is refused; the bytes say which.
   */
  parse(id: bigint | number | string | Uint8Array): Parts {
    this.#state.check()
    const { source } = this.#cursor
    return types.isUint8Array(id) ? partsOf(source, `0x${Buffer.from(id).toString('hex')}`, true) : partsOf(source, id)
  }

  /** This source's figures, over all its counters; after `close` the last ones. */
  stats(): SourceStats {
    return statsOf(this.#cursor.source)
  }

  /** An id, or the pause after which to ask again. */
  #attempt(gene: number, waited: number, registered = false): bigint | number {
    this.#state.check()
    const { source, facts } = this.#cursor
    try {
      return facts.wide ? native.nextWideFor(source, gene, waited, registered) : native.nextFor(source, gene, waited, registered)
    } catch (e) {
      throw translated(e)
    }
  }

  #ask(gene: number, count: number): BatchBox {
    this.#state.check()
    return asked(() => native.askFor(this.#cursor.source, gene, count))
  }

  /** The ids of a complete batch. */
  #listed(batch: BatchBox, count: number): bigint[] {
    const ids = new Array<bigint>(count)
    if (this.#cursor.facts.wide) {
      const words = room(2 * count)
      native.writeWideBatch(batch, words)
      for (let i = 0; i < count; i++) ids[i] = (words[2 * i] << 64n) | words[2 * i + 1]
    } else {
      const words = room(count)
      native.writeBatch(batch, words)
      for (let i = 0; i < count; i++) ids[i] = words[i]
    }
    return ids
  }
}

// What `console.log` shows.
Object.defineProperty(Business.prototype, Symbol.for('nodejs.util.inspect.custom'), {
  value(this: Business) {
    return `Business ${this.label}`
  },
})
