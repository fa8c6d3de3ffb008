import { KeymillError, translated } from './error'
import { garbage, type Cursor } from './cursor'
import { native, type MillBox } from './native'
import { wakeAll } from './wait'

/** What a mill and its sources share: whether it is open. Sources keep their mill alive by it. */
export class MillState {
  open = true
  readonly #mill: MillBox
  readonly #cursors = new Set<Cursor>()

  constructor(mill: MillBox) {
    this.#mill = mill
    garbage.register(this, { all: this.#cursors })
  }

  get mill(): MillBox {
    this.check()
    return this.#mill
  }

  /** Also of a mill that was closed. */
  get box(): MillBox {
    return this.#mill
  }

  /** Figures can be read after the close, too. */
  get metrics(): string {
    return native.metrics(this.#mill)
  }

  get events(): string[] {
    return native.events(this.#mill)
  }

  check(): void {
    if (!this.open) throw new KeymillError('CLOSED', 'the mill was closed')
  }

  /** A source of this mill counts by `cursor`. */
  uses(cursor: Cursor): void {
    if (this.#cursors.has(cursor)) return
    this.#cursors.add(cursor)
    cursor.enter()
  }

  /** `handle` counts by a cursor of its own. */
  lends(cursor: Cursor, handle: object): void {
    this.uses(cursor)
    garbage.register(handle, { all: this.#cursors, ended: cursor })
  }

  close(): void {
    if (!this.#end()) return
    try {
      native.closeMill(this.#mill)
    } catch (e) {
      throw translated(e)
    }
  }

  async closeAsync(): Promise<void> {
    if (!this.#end()) return
    try {
      await native.closeMillAsync(this.#mill)
    } catch (e) {
      throw translated(e)
    }
  }

  #end(): boolean {
    if (!this.open) return false
    this.open = false
    for (const cursor of this.#cursors) cursor.leave()
    this.#cursors.clear()
    wakeAll()
    return true
  }
}
