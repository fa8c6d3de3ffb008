// Two databases of a server as the shards s1 and s2, with an order and its items in each, and the pools of three drivers.
import { createRequire } from 'node:module'

const require = createRequire(import.meta.url)
const found = (name) => {
  try {
    return require(name)
  } catch {
    return undefined
  }
}
const [mysql, mysqlPromise, pg] = ['mysql2', 'mysql2/promise', 'pg'].map(found)

export const TABLES = { t_order: 'order_id', t_item: 'item_of' }
export const DRIVERS = ['mysql2', 'mysql2-callback', 'pg']
const tables = (letters) => [
  'CREATE TABLE t_order (order_id BIGINT PRIMARY KEY, note VARCHAR(40), version BIGINT NOT NULL DEFAULT 0)',
  `CREATE TABLE t_item (item_of BIGINT REFERENCES t_order (order_id), n BIGINT, seat BIGINT UNIQUE, name VARCHAR(40)${letters}, version BIGINT NOT NULL DEFAULT 0, PRIMARY KEY (item_of, n))`,
]

const server = (driver) => process.env[driver === 'pg' ? 'KEYMILL_TEST_POSTGRES' : 'KEYMILL_TEST_MYSQL']
/** Why tests of this driver cannot run. */
export const missing = (driver) => (server(driver) ? (driver === 'pg' ? pg : mysql) === undefined && `${driver} is not installed` : `no server of ${driver} is named`)

let number = 0

/** Runs statements on a connection of any of the drivers: `?` is a parameter. Answers with the rows of the last one, each a list. */
export async function ask(client, sql, values = []) {
  if (typeof client.release === 'function' && client.release.length === 1 && client.constructor.name === 'Client') {
    let at = 0
    return (await client.query({ text: sql.replace(/\?/g, () => `$${++at}`), values, rowMode: 'array' })).rows
  }
  const options = { sql, values, rowsAsArray: true, supportBigNumbers: true }
  if (client.promise) return new Promise((done, failed) => client.query(options, (error, rows) => (error ? failed(error) : done(rows))))
  return (await client.query(options))[0]
}

export class TwoShards {
  constructor(driver, names) {
    this.driver = driver
    this.names = names
    this.pools = []
  }

  static async made(driver) {
    const names = ['a', 'b'].map((letter) => `shards_${letter}_${process.pid}_${++number}_${Date.now() % 1e6}`)
    const two = new TwoShards(driver, names)
    if (driver === 'pg') {
      const root = new pg.Client(server(driver))
      await root.connect()
      for (const name of names) await root.query(`CREATE SCHEMA ${name}`)
      await root.end()
    } else {
      const { hostname, port, username } = new URL(server(driver))
      const root = await mysqlPromise.createConnection({ host: hostname, port: Number(port), user: 'root' })
      for (const name of names) {
        await root.query(`CREATE DATABASE ${name}`)
        await root.query(`GRANT ALL ON ${name}.* TO ${username}@'%'`)
      }
      await root.end()
    }
    for (const at of [0, 1]) for (const table of tables(driver === 'pg' ? '' : ' CHARACTER SET utf8mb4')) await two.ask(at, table)
    return two
  }

  static named(words) {
    const [driver, ...names] = words.split(',')
    return new TwoShards(driver, names)
  }

  words() {
    return [this.driver, ...this.names].join(',')
  }

  /** For the operator's command. */
  url(at) {
    const url = new URL(server(this.driver))
    if (this.driver === 'pg') url.searchParams.set('schema', this.names[at])
    else url.pathname = `/${this.names[at]}`
    return url.href
  }

  pool(at, more = {}) {
    const url = new URL(server(this.driver))
    const place = { host: url.hostname, port: Number(url.port), user: url.username, password: url.password, ...more }
    let pool
    if (this.driver === 'pg') {
      pool = new pg.Pool({ max: 8, ...place, database: url.pathname.slice(1), options: `-c search_path=${this.names[at]}` })
      pool.on('error', () => {})
    } else pool = (this.driver === 'mysql2' ? mysqlPromise : mysql).createPool({ ...place, database: this.names[at], supportBigNumbers: true, bigNumberStrings: true })
    this.pools.push(pool)
    return pool
  }

  both() {
    return { s1: this.pool(0), s2: this.pool(1) }
  }

  async ask(at, sql, values) {
    const pool = this.pool(at)
    const client = await (this.driver === 'pg' ? pool.connect() : this.driver === 'mysql2' ? pool.getConnection() : new Promise((done, failed) => pool.getConnection((error, it) => (error ? failed(error) : done(it)))))
    try {
      return await ask(client, sql, values)
    } finally {
      client.release()
      this.pools.splice(this.pools.indexOf(pool), 1)
      await this.end(pool)
    }
  }

  async all(at) {
    const text = (rows) => rows.map((row) => row.map(String).join(' '))
    return [text(await this.ask(at, 'SELECT order_id, note, version FROM t_order ORDER BY 1')), text(await this.ask(at, 'SELECT item_of, n, seat, name FROM t_item ORDER BY 1, 2'))]
  }

  end(pool) {
    return this.driver === 'mysql2-callback' ? new Promise((done) => pool.end(done)) : pool.end()
  }

  async close() {
    for (const pool of this.pools.splice(0)) await this.end(pool)
  }
}
