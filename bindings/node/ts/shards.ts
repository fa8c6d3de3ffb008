import { AsyncLocalStorage } from 'node:async_hooks'
import { clearTimeout, setTimeout } from 'node:timers'
import { types } from 'node:util'

import { argument, asked, KeymillError, shown } from './error'
import { native, type ShardStep, type ShardTablesBox, type ShardWriteBox } from './native'
import { of64, Router, text } from './router'
import { InUse, shardFailure, shardPool, type ShardConnection, type ShardFailure, type ShardPool } from './shard_connections'

export interface ShardsOptions {
  /**
   * The tables of the ids, each with the column of the id: the first of its primary key. The first table is the root: each id that has rows
   * has one there. Tables to which foreign keys lead come first.
   */
  tables: Record<string, string>
  /** How long a write is tried again, such as `'15s'`, the default, or `'500ms'`. A statement that waits for a lock is not cut short. */
  deadline?: string
}

/** A write is under way. What it has begun may outlive it. */
interface Writing {
  isOver: boolean
}
const writes = new AsyncLocalStorage<Writing>()

/** A connection, or an error after so many milliseconds; a connection that comes later goes back to its pool. */
async function within(ms: number, connecting: Promise<ShardConnection>): Promise<ShardConnection> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<undefined>((done) => (timer = setTimeout(done, ms, undefined)))
  // A timer that is left keeps the process alive.
  const connection = await Promise.race([connecting, late]).finally(() => clearTimeout(timer))
  if (connection !== undefined) return connection
  connecting.then(
    (connection) => connection.close(false),
    () => undefined,
  )
  throw new Error('the pool gave no connection within the deadline')
}

const message = (error: unknown) => (types.isNativeError(error) ? error.message : String(error))

/**
 * Writes and reads ids on the shard where they are, over the program's own connections, also while a range of them moves.
 *
 * A `write` runs the program's work in a transaction on the shard that decides. While the id's range moves, the rows of the id in the named
 * tables are made the same on the other shard, and both are committed. Without a move it adds nothing but the route.
 *
 * ```js
 * const shards = new Shards(mill.router('orders'), { s1: pool1, s2: pool2 }, { tables: { t_order: 'order_id', t_item: 'item_of' } })
 * await shards.write(id, async (client) => {
 *   await client.query('INSERT INTO t_order (order_id, buyer) VALUES (?, ?)', [id, 42])
 * })
 * ```
 *
 * The shards are pools of `mysql2`, with promises or callbacks, or of `pg`; the work gets a connection of that pool.
 */
export class Shards<Client = any> {
  readonly #tables: ShardTablesBox
  readonly #pools = new Map<string, { pool: unknown; connect: ShardPool }>()

  /** Over the shards of a router's table, each with a pool of connections to its database. */
  constructor(router: Router, pools: Record<string, unknown>, options: ShardsOptions) {
    const box = Router.boxOf(router)
    if (typeof pools !== 'object' || pools === null) throw argument(`the pools are an object with one for each shard, not ${shown(pools)}`)
    for (const [shard, pool] of Object.entries(pools)) {
      const connect = shardPool(pool)
      if (connect === undefined) throw new KeymillError('INVALID_CONFIG', `shard \`${shard}\` has ${shown(pool)} that is no pool of mysql2 or pg; a pool is what their \`createPool\` and \`new Pool\` make`)
      this.#pools.set(shard, { pool, connect })
    }
    const { tables, deadline } = options ?? {}
    if (typeof tables !== 'object' || tables === null) throw argument(`tables is an object that names the column of the id for each table, not ${shown(tables)}`)
    const named = Object.entries(tables).map(([name, key]): [string, string] => [text('a table', name), text('the column of a table', key)])
    this.#tables = asked(() => native.shardTables(box, named, deadline === undefined ? undefined : text('deadline', deadline)))
  }

  /**
   * Does the work in a transaction on the shard that decides where this id is written, and answers with its value. It is done again where a step
   * of a move came in between, or the database ended the transaction in favour of another one; so it changes nothing but this transaction, does
   * not commit or release the client, and ends when all its statements have ended: a statement that it sends later, such as by another branch of a
   * `Promise.all` that has failed, is in no transaction of this write.
   *
   * An error of the work comes back as it is, and nothing is left of the transaction. `NOT_READY`, `STORE_UNAVAILABLE`, `STORE_REFUSED`: the message
   * says whether something may have been written.
   */
  async write<T>(id: bigint | number | Uint8Array, work: (client: Client) => Promise<T> | T): Promise<T> {
    const outer = writes.getStore()
    if (outer !== undefined && !outer.isOver) throw argument("a write inside another one would wait for its locks: this task's first write has not ended")
    const writing = { isOver: false }
    try {
      return await writes.run(writing, () => this.#run(id, false, work))
    } finally {
      writing.isOver = true
    }
  }

  /** Does the work on the shard from which this id is read. What it writes is rolled back. */
  async read<T>(id: bigint | number | Uint8Array, work: (client: Client) => Promise<T> | T): Promise<T> {
    return this.#run(id, true, work)
  }

  #begun(id: bigint | number | Uint8Array, reads: boolean): ShardWriteBox {
    if (types.isUint8Array(id)) return native.shardWriteBytes(this.#tables, id, reads)
    return native.shardWrite(this.#tables, of64('an id', id, 0n), reads)
  }

  async #run<T>(id: bigint | number | Uint8Array, reads: boolean, work: (client: Client) => Promise<T> | T): Promise<T> {
    if (typeof work !== 'function') throw argument(`the work is a function that takes a client, not ${shown(work)}`)
    const write = asked(() => this.#begun(id, reads))
    const held: [ShardConnection | undefined, ShardConnection | undefined] = [undefined, undefined]
    const from: [unknown, unknown] = [undefined, undefined]
    let value: T | undefined
    let thrown: unknown

    /** Milliseconds for what has no end of its own. */
    const left = () => Math.max(native.shardLeft(write), 1000)
    const failed = ({ state, number, message, isBroken }: ShardFailure) => native.shardFailed(write, state, number, message, isBroken)
    /** A step of the core has failed: it decides what that means. */
    const failedStep = (side: 0 | 1, error: unknown) => {
      const said = shardFailure(error) ?? { state: '', number: 0, message: message(error), isBroken: false }
      return failed({ ...said, isBroken: said.isBroken || held[side]?.isOver() === true })
    }
    const open = async (side: 0 | 1, shard: string): Promise<ShardStep> => {
      const known = this.#pools.get(shard)
      if (known === undefined) return native.shardUnnamed(write, 'the second argument of `Shards` has a pool for each shard')
      if (side === 1 && known.pool === from[0]) return native.shardShared(write, 'each shard needs its own pool')
      let connection
      try {
        connection = await within(left(), known.connect())
      } catch (error) {
        if (error instanceof InUse) return native.shardInUse(write)
        return failedStep(side, error)
      }
      held[side] = connection
      from[side] = known.pool
      return native.shardOpened(write, connection.isPostgres)
    }
    const on = async (side: 0 | 1, verb: (connection: ShardConnection) => Promise<unknown>): Promise<ShardStep> => {
      try {
        await verb(held[side] as ShardConnection)
      } catch (error) {
        return failedStep(side, error)
      }
      return native.shardReady(write)
    }
    const ask = async (side: 0 | 1, sql: string): Promise<ShardStep> => {
      let rows
      try {
        rows = await (held[side] as ShardConnection).ask(sql)
      } catch (error) {
        return failedStep(side, error)
      }
      return native.shardRows(write, rows)
    }
    const worked = async (): Promise<ShardStep> => {
      const connection = held[0] as ShardConnection
      try {
        value = await work(connection.client as Client)
      } catch (error) {
        thrown = error
        // A work that fails by itself says nothing of the database. A statement that it has begun must not go on after the rollback.
        const said = shardFailure(error) ?? { state: '', number: 0, message: '', isBroken: false }
        return failed({ ...said, isBroken: said.isBroken || connection.isOver() || connection.isBusy() })
      }
      // A statement that the work did not wait for may end soon. A result that nobody reads never does.
      const until = performance.now() + left()
      for (let pause = 1; connection.isBusy() && !connection.isOver(); pause = Math.min(2 * pause, 50)) {
        if (performance.now() > until) return native.shardUnread(write)
        await new Promise((done) => setTimeout(done, pause))
      }
      return native.shardReady(write)
    }
    const close = (side: 0 | 1, ends: boolean) => {
      const connection = held[side]
      held[side] = undefined
      try {
        connection?.close(ends)
      } catch {
        // The work has released it, or it was broken.
      }
    }

    try {
      let step = native.shardReady(write)
      for (;;) {
        switch (step.action) {
          case 'open':
            step = await open(step.side, step.text)
            break
          case 'begin':
            // `BEGIN` begins a block in MariaDB's mode `ORACLE`.
            step = await on(step.side, (connection) => connection.ask('START TRANSACTION'))
            break
          case 'ask':
            step = await ask(step.side, step.text)
            break
          case 'work':
            step = await worked()
            break
          case 'commit':
            step = await on(step.side, (connection) => connection.commit())
            break
          case 'rollback':
            step = await on(step.side, (connection) => connection.ask('ROLLBACK'))
            break
          case 'close':
            close(step.side, step.number !== 0)
            step = native.shardReady(write)
            break
          case 'wait': {
            const { number } = step
            await new Promise((done) => setTimeout(done, number))
            step = native.shardReady(write)
            break
          }
          case 'throw':
            throw thrown
          case 'done':
            return value as T
        }
      }
    } catch (error) {
      if (error === thrown) throw error
      throw asked(() => {
        throw error
      })
    } finally {
      // Nothing is held, unless the core itself has failed.
      close(0, true)
      close(1, true)
    }
  }
}
