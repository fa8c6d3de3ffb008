// The two ways to wait. Both end when the worker is terminated; neither holds anything.
import { performance } from 'node:perf_hooks'
import * as timers from 'node:timers'
import { native, type BatchBox, type NotifierBox, type RegistrationBox, type SourceBox } from './native'

// The runtime's own: test runners put others in the place of the global ones, under which no deadline would pass.
const { setTimeout, clearTimeout } = timers
const now = performance.now.bind(performance)

const never = new Int32Array(new SharedArrayBuffer(4))

/** Blocks this thread. */
export function sleep(ms: number): void {
  Atomics.wait(never, 0, 0, ms)
}

/** How long a call has waited. It reads no clock until it first waits. */
export class Patience {
  #since = -1

  get waited(): number {
    return this.#since < 0 ? 0 : now() - this.#since
  }

  begin(): void {
    if (this.#since < 0) this.#since = now()
  }
}

/** The longest timer of the runtime; a longer one ends at once. */
const LONGEST_TIMER = 2 ** 31 - 1

/**
 * The calls of this context that wait off the event loop. Each is told by the keeper when its source has news, which is one event however
 * many calls they are for. A timer ends the wait at its deadline and keeps the process alive while a caller awaits it.
 */
class Waiters {
  /** What ends the wait of each call, by its token. */
  readonly #waiting = new Map<number, () => void>()
  readonly #notifier: NotifierBox = native.notifier(() => {
    for (const token of native.news(this.#notifier)) this.#waiting.get(token)?.()
  })
  #last = 0

  /**
   * What `ask` answers other than the pause after which to ask again. It is asked again when there are news, too. `register` is called
   * before each question.
   */
  async answer<T>(register: Register, ask: (notifier: NotifierBox, token: number) => T | number): Promise<T> {
    const token = ++this.#last
    for (;;) {
      let timer: NodeJS.Timeout | undefined
      let registration: RegistrationBox | undefined
      try {
        const news = new Promise<void>((told) => this.#waiting.set(token, told))
        registration = register?.(this.#notifier, token)
        const answer = ask(this.#notifier, token)
        if (typeof answer !== 'number') return answer
        timer = setTimeout(() => this.#waiting.get(token)?.(), Math.min(answer, LONGEST_TIMER))
        await news
      } finally {
        clearTimeout(timer)
        this.#waiting.delete(token)
        if (registration !== undefined) native.unregister(registration)
      }
    }
  }

  /** A mill of this context was closed: its calls find that out, though others keep its sources open. */
  wake(): void {
    for (const told of this.#waiting.values()) told()
  }
}

type Register = ((notifier: NotifierBox, token: number) => RegistrationBox) | undefined

/** Made with the first call that waits. */
let waiters: Waiters | undefined

/** The calls of this context that wait ask again. */
export function wakeAll(): void {
  waiters?.wake()
}

/**
 * Calls of one source that wait off the event loop. Of the calls for one gene (−1 in a source without keys) only the first asks for
 * ids, so the ids come in the order of the calls. Calls for different genes do not wait for each other, so the keeper learns of all
 * counters that lack numbers. Each call counts its own wait, so that all behind one whose deadline passed fail at once.
 */
export class Queue {
  /** The last call of each gene that waits. */
  readonly #last = new Map<number, Promise<void>>()
  readonly #source: SourceBox

  constructor(source: SourceBox) {
    this.#source = source
  }

  /** No call for this gene waits. */
  isEmpty(gene = -1): boolean {
    return !this.#last.has(gene)
  }

  /** Asks for an id in the order of the calls for this gene, until the answer is no pause. */
  async id<T>(ask: () => T | number, gene = -1): Promise<T> {
    const register = (notifier: NotifierBox, token: number) => native.register(this.#source, gene, notifier, token)
    return this.#turn(() => (waiters ??= new Waiters()).answer(register, ask), gene)
  }

  /** Waits until a batch is complete, in the order of the calls for this gene; `check` throws where it never will be. */
  async batch(batch: BatchBox, check: () => void, gene = -1): Promise<void> {
    const ask = (notifier: NotifierBox, token: number) => {
      check()
      return native.pollOrRegister(batch, notifier, token) || true
    }
    await this.#turn(() => (waiters ??= new Waiters()).answer<true>(undefined, ask), gene)
  }

  /** Runs `work` when all calls for this gene before it are done. */
  async #turn<R>(work: () => Promise<R>, gene: number): Promise<R> {
    const before = this.#last.get(gene)
    let leave!: () => void
    const mine = new Promise<void>((done) => (leave = done))
    this.#last.set(gene, mine)
    try {
      if (before !== undefined) await before
      return await work()
    } finally {
      if (this.#last.get(gene) === mine) this.#last.delete(gene)
      leave()
    }
  }
}
