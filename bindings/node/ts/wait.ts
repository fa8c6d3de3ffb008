// The two ways to wait. Both end when the worker is terminated; neither holds anything.

const never = new Int32Array(new SharedArrayBuffer(4))

/** Blocks this thread. */
export function sleep(ms: number): void {
  Atomics.wait(never, 0, 0, ms)
}

/** Waits off the event loop; the timer keeps the process alive, for somebody awaits it. */
export function pause(ms: number): Promise<void> {
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
