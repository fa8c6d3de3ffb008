// Counting through a leased block in JavaScript.
//
// A number of the block may be issued while two words stand as they did when it was leased. Both live in Rust, are seen
// through views and read by plain loads, the low 32 bits of each:
//   * the source's revocation word: raised when the mill closes, a period ends, a ttl passes. Words start at multiples
//     of 2^32 and rise by one, so the low half tells two values of one word apart; the native source keeps the word from
//     being given to another, and a Node process is never a fork.
//   * the word of the source's contexts: raised when a second context (worker) holds a source with `order=process`; see
//     `bindings/node/rust/src/contexts.rs`.
// No engine merges loads of typed arrays over calls, since any of them may be shared memory; an engine that did within a loop
// would notice a revocation at the end of the block. It could delay a change, never repeat a number.
import { isMainThread } from 'node:worker_threads'
import { translated } from './error'
import { native, type SourceBox, type SourceFacts } from './native'
import { Queue } from './wait'

/** A word that always reads 0. */
const ZERO = new Uint32Array(1)
const OUT = new BigUint64Array(6)
const nothing = (): undefined => undefined
const ZEROS = '000000000000000000'
export class Cursor {
  /** Offset of the next number, and where the block ends. */
  at = 0
  end = 0
  base = 0n
  /** `base` as a number, for texts; NaN where it does not fit. */
  first = 0
  word = ZERO
  leasedAt = 0
  contexts = ZERO
  contextsAt = 0
  prefix = ''
  width = 1
  /** How many mills and handles of this context count by it. */
  #users = 0
  /** Batches that wait: meanwhile ids are taken one by one, so that no batch overtakes a number in the block. */
  batches = 0
  /** The calls that wait off the event loop. */
  readonly queue: Queue
  /** While the contexts' word reads this, ids come from the core: another context holds the source, or there are no blocks. */
  sharedAt = -1
  /** The next id of the core, if one is in memory; made when it is needed. */
  direct: () => bigint | undefined = nothing
  readonly facts: SourceFacts
  /** Takes every id from the core: ids that do not follow each other have no blocks, some runtimes no views. */
  #single: boolean
  #mapped = false
  readonly #identity: string | undefined
  readonly #owned: boolean

  /** The cursor of the source `identity`; without one, a handle's own. */
  constructor(readonly source: SourceBox, identity?: string) {
    this.facts = native.sourceFacts(source)
    this.queue = new Queue(source)
    this.#identity = identity
    this.#owned = identity === undefined
    this.#single = !this.facts.counts
    if (this.#single) this.#alwaysDirect()
    if (this.#single || this.#owned || this.facts.byThread) return
    native.join(source)
    const contexts = native.contextsWord(source)
    if (contexts === null) this.#alwaysDirect()
    else this.contexts = new Uint32Array(contexts)
  }

  /** Whether the block's next number may be issued. */
  get live(): boolean {
    return this.at < this.end && this.word[0] === this.leasedAt && this.contexts[0] === this.contextsAt
  }

  /** How many numbers of the block may be issued. */
  get left(): number {
    return this.live ? this.end - this.at : 0
  }

  /** The number at an offset of the block, as text. */
  text(at: number): string {
    const number = this.first + at
    const digits = number <= Number.MAX_SAFE_INTEGER ? String(number) : String(this.base + BigInt(at))
    return digits.length < this.width ? this.prefix + ZEROS.slice(digits.length - this.width) + digits : this.prefix + digits
  }

  /** An id, or the pause after which to ask again; see `lease` of the native part for `waited`. `registered`: the caller is told of news. */
  tryId(waited: number, registered = false): bigint | number {
    try {
      const pause = this.#refill(waited, registered)
      if (pause < 0) return this.direct() ?? native.nextId(this.source, waited, registered)
      return pause > 0 ? pause : this.base + BigInt(this.at++)
    } catch (e) {
      throw translated(e)
    }
  }

  /** A text, or the pause after which to ask again. */
  tryText(waited: number, registered = false): string | number {
    try {
      const pause = this.#refill(waited, registered)
      if (pause < 0) return native.nextText(this.source, waited, registered)
      return pause > 0 ? pause : this.text(this.at++)
    } catch (e) {
      throw translated(e)
    }
  }

  #alwaysDirect(): void {
    this.#single = true
    this.contexts = ZERO
    this.sharedAt = ZERO[0]
    this.#makeDirect()
  }

  #makeDirect(): void {
    if (this.direct === nothing) this.direct = native.directNext(this.source, false) ?? nothing
  }

  /** 0: the block's next number may be issued; above: a pause; below: take one from the core. */
  #refill(waited: number, registered: boolean): number {
    if (this.#single || this.contexts[0] === this.sharedAt) return -1
    while (!this.live) {
      // Of a block that another context ended; what a close or the end of a period revoked is lost.
      if (this.at < this.end) this.giveBack()
      const contexts = this.contexts[0]
      const pause = native.lease(this.source, this.batches > 0 ? 1 : 0, this.#owned, waited, OUT, registered)
      // Not alone, at least until the word rises again. It was read before the lease: at worst the core is asked once more.
      if (pause < 0) {
        this.sharedAt = contexts
        this.#makeDirect()
      }
      if (pause !== 0) return pause
      if (!this.#mapped && !this.#map()) return -1
      this.base = OUT[0]
      this.first = Number(OUT[0])
      this.at = 0
      this.end = Number(OUT[1])
      this.leasedAt = Number(OUT[2])
      this.contextsAt = Number(OUT[3])
      if (OUT[4] !== 0n) this.prefix = native.prefix(this.source)
      this.width = Number(OUT[5])
    }
    return 0
  }

  #map(): boolean {
    const word = native.sourceWord(this.source)
    this.#mapped = word !== null
    // Without the word the block cannot be revoked: its numbers are dropped.
    if (word === null) this.#alwaysDirect()
    else this.word = new Uint32Array(word)
    return this.#mapped
  }

  /** Gives back what is left of the block. */
  giveBack(): void {
    const used = this.at
    this.end = 0
    native.giveBack(this.source, used)
  }

  /** One of its users has ended. */
  leave(): void {
    this.#users -= 1
    if (this.#users > 0) return
    this.giveBack()
    inUse.delete(this)
    if (inUse.size === 0) copies?.delete(copy)
    if (this.#identity !== undefined && byIdentity.get(this.#identity) === this) byIdentity.delete(this.#identity)
    native.leave(this.source)
  }

  /** It has one user more. */
  enter(): void {
    this.#users += 1
    if (inUse.size === 0) (copies ??= copiesOf()).add(copy)
    inUse.add(this)
  }
}

/** The cursors of this context that have users. They are held here, so that what is left of a block outlives its garbage users. */
const inUse = new Set<Cursor>()
/** Those that are no handle's, one per source: asking twice for a source gives one order. */
const byIdentity = new Map<string, Cursor>()

/** Ends the use of cursors whose mill, or whose handle, is garbage: what is left of their blocks goes back. */
export const garbage = new FinalizationRegistry<{ all: Set<Cursor>; ended?: Cursor }>(({ all, ended }) => {
  for (const cursor of ended === undefined ? [...all] : [ended]) {
    if (all.delete(cursor)) cursor.leave()
  }
})

/** A copy of this module that has cursors in use. It holds `garbage`: a registry that is garbage itself reports nothing. */
interface Copy {
  giveBack(): void
  readonly garbage: unknown
}
const copy: Copy = {
  // A clean exit: the mills that are still open close after it, and give back what their sources have.
  giveBack() {
    for (const cursor of inUse) cursor.giveBack()
  },
  garbage,
}
let copies: Set<Copy> | undefined

const COPIES = Symbol.for('keymill.copies')
type Listener = (() => void) & { [COPIES]?: Set<Copy> }

/** The copies that the process's listener for its exit asks. Registries of modules, such as Jest's, make hundreds, which share one listener. */
function copiesOf(): Set<Copy> {
  for (const listener of process.listeners('exit') as Listener[]) {
    if (listener[COPIES] !== undefined) return listener[COPIES]
  }
  const all = new Set<Copy>()
  const listener: Listener = () => {
    all.forEach((one) => one.giveBack())
    if (endsThreadsFirst && isMainThread) native.closeAllMills()
  }
  listener[COPIES] = all
  process.once('exit', listener)
  return all
}

/** Windows ends all threads before a library hears of the end of the process, and then no mill can give numbers back: the listener closes them. */
const endsThreadsFirst = process.platform === 'win32'

/** A mill was opened. */
export function opened(): void {
  if (endsThreadsFirst) copies ??= copiesOf()
}

export function cursorOf(source: SourceBox): Cursor {
  const identity = native.identity(source)
  const known = byIdentity.get(identity)
  if (known !== undefined) return known
  const cursor = new Cursor(source, identity)
  byIdentity.set(identity, cursor)
  return cursor
}
