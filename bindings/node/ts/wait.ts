// The two ways to wait. Both end when the worker is terminated; neither holds anything.

const never = new Int32Array(new SharedArrayBuffer(4))

/** Blocks this thread. */
export function sleep(ms: number): void {
  Atomics.wait(never, 0, 0, ms)
}

/** Waits off the event loop; the timer keeps the process alive while a caller awaits it. */
function pause(ms: number): Promise<void> {
  return new Promise((done) => setTimeout(done, ms))
}

/** How long a call has waited. It reads no clock until it first waits. */
export class Patience {
  #since = -1

  get waited(): number {
    return this.#since < 0 ? 0 : performance.now() - this.#since
  }

  begin(): void {
    if (this.#since < 0) this.#since = performance.now()
  }
}

/** How often all calls of a source ask for ids at most. A call takes about 2 µs, and the event loop has other work. */
const ASKED_PER_MS = 100

/**
 * Calls of one source that wait off the event loop. Of the calls for one gene (0 in a source without keys) only the first asks for
 * ids, so the ids come in the order of the calls. Calls for different genes do not wait for each other, so the keeper learns of all
 * counters that lack numbers. Each call counts its own wait, so that all behind one whose deadline passed fail at once.
 */
export class Queue {
  /** The last call of each gene that waits. */
  readonly #last = new Map<number, Promise<void>>()

  /** No call for this gene waits. */
  isEmpty(gene = 0): boolean {
    return !this.#last.has(gene)
  }

  /** Waits off the event loop until a call asks again: the longer, the more genes are waited for. */
  pause(ms: number): Promise<void> {
    return pause(Math.max(ms, this.#last.size / ASKED_PER_MS))
  }

  /** Runs `work` when all calls for this gene before it are done. */
  async turn<R>(work: () => Promise<R>, gene = 0): Promise<R> {
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
