// Changes fifty hot ids through `Shards` until a file says stop; `crowd.py` tells the arguments and the lines of the log, and does the same.
//
//     node crowd.mjs MILL KIND SHARDS LOG NAME WORKERS
import { existsSync, openSync, readFileSync, writeSync } from 'node:fs'
import { setTimeout as pause } from 'node:timers/promises'
import { KeymillError, open, Shards } from 'keymill'
import mysql from 'mysql2/promise'
import pg from 'pg'

const [config, kind, places, file, name, workers] = process.argv.slice(2)
const [FIRST, IDS, ITEMS] = [32768n << 47n, 50, [1, 2, 3, 4, 5, 6]]
const PASSING = ['STORE_UNAVAILABLE', 'NOT_READY', 'LEASE_LOST']
const aggregate = kind === 'postgres' ? "string_agg(n || ':' || seat, ',' ORDER BY n)" : "GROUP_CONCAT(CONCAT(n, ':', seat) ORDER BY n)"
const READ = `SELECT counter, token, note, (SELECT ${aggregate} FROM t_item WHERE item_of = order_id) FROM t_order WHERE order_id = ?`

const log = openSync(file, 'a')
const note = (...words) => writeSync(log, `${words.join(' ')}\n`)
const below = (most) => Math.floor(Math.random() * most)
const one = (list) => list[below(list.length)]
const drawn = () => FIRST + 2n * BigInt(below(IDS))
const now = () => process.hrtime.bigint()

function database(place) {
  const [, host, port, shop] = place.match(/^(.*):(\d+)\/(.*)$/)
  const login = { host, port: Number(port), user: 'shop', password: 'secret', database: shop }
  let pool
  if (kind === 'postgres') {
    pool = new pg.Pool({ ...login, max: Number(workers) + 1 })
    // A connection that was ended while nobody used it.
    pool.on('error', () => {})
  } else {
    pool = mysql.createPool({ ...login, connectionLimit: Number(workers) + 1, supportBigNumbers: true, bigNumberStrings: true })
    // Otherwise writers of new ids wait for each other's gaps.
    pool.on('connection', (connection) => connection.query('SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED'))
  }
  return pool
}

/** Runs a statement; answers with its rows, each a list of texts. */
async function ask(client, sql, ...values) {
  const words = values.map((value) => (typeof value === 'bigint' ? String(value) : value))
  let rows
  if (kind === 'postgres') {
    let at = 0
    rows = (await client.query({ text: sql.replace(/\?/g, () => `$${++at}`), values: words, rowMode: 'array' })).rows
  } else rows = (await client.query({ sql, values: words, rowsAsArray: true }))[0]
  return Array.isArray(rows) ? rows.map((row) => row.map((cell) => (cell === null ? null : String(cell)))) : []
}

async function work(client, worker, id, token) {
  const [before] = await ask(client, 'SELECT counter, token FROM t_order WHERE order_id = ? FOR UPDATE', id)
  const items = new Map()
  const insertOrder = () => ask(client, 'INSERT INTO t_order (order_id, counter, token) VALUES (?, 0, ?)', id, token)
  const deleteOrder = () => ask(client, 'DELETE FROM t_order WHERE order_id = ?', id)
  const setSeat = (n, seat) => ask(client, 'UPDATE t_item SET seat = ? WHERE item_of = ? AND n = ?', seat, id, n)
  async function insert(n) {
    const seats = ITEMS.map((at) => ((Number(id - FIRST) / 2) * 100 + at))
    const seat = one(seats.filter((seat) => ![...items.values()].includes(seat)))
    await ask(client, 'INSERT INTO t_item (item_of, n, seat, name) VALUES (?, ?, ?, ?)', id, n, seat, `名${n}`)
    items.set(n, seat)
  }
  async function remove(n) {
    await ask(client, 'DELETE FROM t_item WHERE item_of = ? AND n = ?', id, n)
    items.delete(n)
  }
  let counter
  if (before) {
    counter = BigInt(before[0]) + 1n
    for (const [n, seat] of await ask(client, 'SELECT n, seat FROM t_item WHERE item_of = ? FOR UPDATE', id)) items.set(Number(n), Number(seat))
  } else {
    await insertOrder()
    // The id is locked from now on.
    counter = now() / 1000n
  }
  if (below(100) === 0) await pause(20 + below(180))
  const [what, there] = [below(10), [...items.keys()].sort()]
  const absent = ITEMS.filter((n) => !items.has(n))
  let isGone = false
  if (!before) {
    for (const n of ITEMS) if (below(3) === 0) await insert(n)
  } else if (what === 0) {
    for (const n of there) await remove(n)
    await deleteOrder()
    isGone = true
  } else if (what === 1) {
    // The whole order comes back at once, with other seats.
    for (const n of there) await remove(n)
    await deleteOrder()
    await insertOrder()
    for (const n of there.toReversed()) await insert(n)
  } else if (what <= 3 && absent.length > 0) await insert(one(absent))
  else if (what === 4 && there.length > 0) await remove(one(there))
  else if ((what === 5 || what === 6) && there.length > 1) {
    // Two rows exchange a value of which there is one.
    const first = one(there)
    const second = one(there.filter((n) => n !== first))
    const [a, b] = [items.get(first), items.get(second)]
    for (const [n, seat] of [[first, null], [second, a], [first, b]]) await setSeat(n, seat)
    items.set(first, b).set(second, a)
  } else if (what === 7 && there.length > 0) {
    // A key comes back.
    const n = one(there)
    await remove(n)
    await insert(n)
  }
  const state = [...items].sort(([a], [b]) => a - b).map(([n, seat]) => `${n}:${seat}`).join(',')
  if (!isGone) {
    await ask(client, 'UPDATE t_order SET counter = ?, token = ?, note = ?, amount = ? + 0.25 WHERE order_id = ?', counter, token, `é'${state}`, counter, id)
  }
  note('try', worker, id, ...(before ?? ['-', '-']), counter, token, isGone ? 'gone' : state || 'none')
  return [counter, token]
}

function mayPass(error) {
  if (error instanceof KeymillError ? !PASSING.includes(error.code) : error.code === undefined && error.errno === undefined && !/connection/i.test(error.message)) throw error
}

async function read(worker, id) {
  const began = now()
  let found
  try {
    found = await shards.read(id, (client) => ask(client, READ, id))
  } catch (error) {
    return mayPass(error)
  }
  const ended = now()
  const [counter, token, said, items] = found[0] ?? ['-', '-', "é'", '']
  if (said !== `é'${items ?? ''}`) note('WRONG', id, counter, token, said, items)
  note('read', worker, id, counter, token, began, ended)
}

async function run(worker) {
  let [runs, held] = [0, '']
  while (!existsSync(`${file}.stop`)) {
    if (existsSync(`${file}.hold`)) {
      let number = held
      try {
        number = readFileSync(`${file}.hold`, 'utf8')
      } catch {
        // It goes on.
      }
      if (number !== held) note('hold', worker, (held = number))
      await pause(20)
      continue
    }
    const [id, began] = [drawn(), now()]
    try {
      const done = await shards.write(id, (client) => work(client, worker, id, `${name}/${worker}/${++runs}`))
      note('ack', worker, id, ...done, began, now())
    } catch (error) {
      const ended = now()
      mayPass(error)
      note('no', worker, id, began, ended, error.message.includes('not acknowledged') ? 'maybe' : 'sure', error.code ?? error.name, ...error.message.split(/\s+/))
    }
    if (below(2) === 0) await read(worker, drawn())
  }
}

/** Its first look at the store may be cut off. */
function router() {
  for (;;) {
    try {
      return mill.router('orders')
    } catch (error) {
      mayPass(error)
    }
  }
}

const mill = open(config)
const both = Object.fromEntries(places.split(',').map((word) => word.split('=')).map(([shard, place]) => [shard, database(place)]))
const shards = new Shards(router(), both, { tables: { t_order: 'order_id', t_item: 'item_of' } })
await Promise.all(Array.from({ length: Number(workers) }, (_, worker) => run(worker)))
for (const pool of Object.values(both)) await pool.end()
mill.close()
