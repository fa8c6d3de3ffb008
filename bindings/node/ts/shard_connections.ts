// Connections of the program's own pools, told apart by their shapes: pools of `mysql2`, with promises or callbacks, and of `pg`.
import { types } from 'node:util'

import { argument } from './error'
import type { ShardRow } from './native'

/** What an error says about the database. */
export interface ShardFailure {
  /** The SQLSTATE. */
  state: string
  /** The number of the server's error. */
  number: number
  message: string
  /** The connection cannot be used any more. */
  isBroken: boolean
}

/** A connection while a write has it. */
export interface ShardConnection {
  readonly isPostgres: boolean
  /** What the program's work gets. */
  readonly client: unknown
  /** Runs a statement that has no parameters. */
  ask(sql: string): Promise<ShardRow[]>
  commit(): Promise<void>
  /** The connection has ended by itself. */
  isOver(): boolean
  /** A statement has not ended, or rows of its result are unread: the next one would wait for it. */
  isBusy(): boolean
  /** Gives it back to its pool; `ends`: nobody gets it again. */
  close(ends: boolean): void
}

/** Gets a connection from a pool. */
export type ShardPool = () => Promise<ShardConnection>

type Told = (error: unknown, answer?: any) => void

/** The part of `mysql2` that is used. */
interface MysqlConnection {
  query(options: object, told: Told): void
  release(): void
  destroy(): void
  _fatalError?: unknown
  _closing?: boolean
  _command?: unknown
}
interface MysqlPool {
  getConnection(told: Told): void
}
interface MysqlPromisePool {
  pool: MysqlPool
  getConnection(): Promise<{ connection: MysqlConnection }>
}

/** A pool gave a connection twice. */
export class InUse extends Error {}

/** Connections that writes and reads have now. */
const inUse = new WeakSet<object>()

/** Refuses `release` of a connection until the answer is called: its pool would give it to another task while its transaction is open. */
function kept(connection: { release(ends?: boolean): void }): () => void {
  if (inUse.has(connection)) throw new InUse('a connection that another write or read has')
  inUse.add(connection)
  const own = Object.getOwnPropertyDescriptor(connection, 'release')
  // Libraries tell the drivers by the parameters of their functions, too.
  connection.release = (_ends?: boolean) => {
    throw argument('the client is given back after the work: do not release it')
  }
  return () => {
    inUse.delete(connection)
    if (own === undefined) delete (connection as { release?: unknown }).release
    else Object.defineProperty(connection, 'release', own)
  }
}

class MysqlShardConnection implements ShardConnection {
  readonly isPostgres = false
  readonly #free: () => void

  constructor(
    readonly client: unknown,
    readonly raw: MysqlConnection,
  ) {
    this.#free = kept(raw)
  }

  ask(sql: string): Promise<ShardRow[]> {
    // Whatever the program has set for its own: rows are lists of bytes.
    const options = { sql, rowsAsArray: true, nestTables: false, typeCast: (field: { buffer(): Buffer | null }) => field.buffer() }
    return new Promise((done, failed) => {
      this.raw.query(options, (error, rows) => (error ? failed(error as Error) : done(Array.isArray(rows) ? rows : [])))
    })
  }

  async commit(): Promise<void> {
    await this.ask('COMMIT')
  }

  isOver(): boolean {
    return Boolean(this.raw._fatalError ?? this.raw._closing)
  }

  isBusy(): boolean {
    return Boolean(this.raw._command)
  }

  close(ends: boolean): void {
    this.#free()
    if (ends) this.raw.destroy()
    else this.raw.release()
  }
}

/** The part of `pg` that is used. */
interface PgClient {
  query(query: object): Promise<{ rows?: unknown[]; command?: string }>
  release(ends?: boolean): void
  on(event: 'error', told: () => void): void
  removeListener(event: 'error', told: () => void): void
  readyForQuery?: boolean
}
interface PgPool {
  connect(told: (error: unknown, client?: PgClient) => void): void
}

const texts = { getTypeParser: () => (value: unknown) => value }

function cell(value: unknown): Uint8Array | null {
  if (value === null || value === undefined) return null
  // A test runner's realm has a `Uint8Array` of its own.
  return types.isUint8Array(value) ? value : Buffer.from(String(value), 'utf8')
}

class PgShardConnection implements ShardConnection {
  readonly isPostgres = true
  #isOver = false
  readonly #free: () => void
  // A client that a pool has given out tells its end by an event, which ends the process where nothing listens.
  readonly #ended = () => {
    this.#isOver = true
  }

  constructor(readonly client: PgClient) {
    this.#free = kept(client)
    client.on('error', this.#ended)
  }

  async ask(sql: string): Promise<ShardRow[]> {
    const answer = await this.client.query({ text: sql, rowMode: 'array', types: texts })
    return (answer.rows ?? []).map((row) => (row as unknown[]).map(cell))
  }

  async commit(): Promise<void> {
    // PostgreSQL rolls back where a statement has failed, and calls that no error.
    const { command } = await this.client.query({ text: 'COMMIT' })
    if (command !== 'COMMIT') throw new ShardError({ state: '25P02', number: 0, message: 'a statement of the transaction has failed', isBroken: false })
  }

  isOver(): boolean {
    return this.#isOver
  }

  isBusy(): boolean {
    return this.client.readyForQuery === false
  }

  close(ends: boolean): void {
    this.client.removeListener('error', this.#ended)
    this.#free()
    this.client.release(ends)
  }
}

/** A failure that no driver throws. */
class ShardError extends Error {
  constructor(readonly failure: ShardFailure) {
    super(failure.message)
  }
}

/** Takes a connection within its pool's callback, where an error would be nobody's. */
function give(take: () => ShardConnection, done: (connection: ShardConnection) => void, failed: (error: unknown) => void): void {
  try {
    done(take())
  } catch (error) {
    failed(error)
  }
}

const has = (value: unknown, name: string) => typeof (value as Record<string, unknown> | null)?.[name] === 'function'

/** How to get connections from a pool of the program; `undefined`: it is no pool of a known driver. */
export function shardPool(pool: any): ShardPool | undefined {
  if (has(pool, 'getConnection')) {
    if (has(pool, 'promise')) {
      return () =>
        new Promise((done, failed) => {
          ;(pool as MysqlPool).getConnection((error, raw) => {
            if (error) failed(error as Error)
            else give(() => new MysqlShardConnection(raw, raw), done, failed)
          })
        })
    }
    if (has(pool.pool, 'promise')) {
      return async () => {
        const client = await (pool as MysqlPromisePool).getConnection()
        return new MysqlShardConnection(client, client.connection)
      }
    }
    return undefined
  }
  // A client of `pg` has `connect` too, and gives out nothing.
  if (has(pool, 'connect') && has(pool, 'query') && typeof pool.totalCount === 'number') {
    // Not by a promise: the server may end the session in the message in which the login ends, and nothing would listen to the client yet.
    return () =>
      new Promise((done, failed) => {
        ;(pool as PgPool).connect((error, client) => {
          if (client) give(() => new PgShardConnection(client), done, failed)
          else failed(error as Error)
        })
      })
  }
  return undefined
}

/** What an error says about the database, wherever in it the driver's error is; `undefined`: it is of no driver. */
export function shardFailure(error: unknown): ShardFailure | undefined {
  let one: any = error
  // Drizzle, TypeORM and Sequelize keep the driver's error under these names.
  for (let depth = 0; typeof one === 'object' && one !== null && depth < 16; depth++) {
    if (one instanceof ShardError) return one.failure
    const message = String(one.message)
    if (typeof one.sqlState === 'string' || one.fatal === true) {
      return { state: one.sqlState ?? '', number: one.errno > 0 ? one.errno : 0, message, isBroken: one.fatal === true }
    }
    // The codes of the system's errors have five letters too, and no severity.
    if (typeof one.severity === 'string' && typeof one.code === 'string') return { state: one.code, number: 0, message, isBroken: /^(FATAL|PANIC)$/.test(one.severity) }
    one = one.driverError ?? one.original ?? one.cause
  }
  return undefined
}
