// Orders of a shop whose rows lie on several databases: placed, changed and read again until a file says stop. `shop.py` says the arguments.
//
//     node shop.mjs MILL KEYS SHARDS LOG SEED
import { appendFileSync, existsSync, writeFileSync } from 'node:fs'
import { setTimeout as pause } from 'node:timers/promises'
import { open, OrderNumbers, Shards } from 'keymill'
import mysql from 'mysql2/promise'

const BUYERS = 2000
// No value is left to the database: two of them would say different times.
const WRITE = `INSERT INTO t_order (order_id, order_no, order_no_kv, buyer_id, version, created_at)
VALUES (?, ?, ?, ?, ?, FROM_UNIXTIME(? / 1000))
ON DUPLICATE KEY UPDATE version = VALUES(version)`
const READ = 'SELECT version FROM t_order WHERE order_id = ?'

const [config, keys, shards, log] = process.argv.slice(2)

/** The connections to a shard. */
function database(place) {
  const [, host, port, name] = place.match(/^(.*):(\d+)\/(.*)$/)
  const pool = mysql.createPool({ host, port: Number(port), user: 'keymill', password: 'secret', database: name, connectTimeout: 2000, connectionLimit: 2 })
  // Otherwise writers of new ids wait for each other's gaps.
  pool.on('connection', (connection) => connection.query('SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED'))
  return pool
}
const places = Object.fromEntries(shards.split(',').map((shard) => shard.split('=')).map(([shard, place]) => [shard, database(place)]))

/** Writes the order, until it is acknowledged; answers with the shard that decides. */
async function write(id, row) {
  for (;;) {
    try {
      await stored.write(id, (connection) => connection.query(WRITE, row))
      return router.route(id).shard
    } catch {
      // The same row again is no other one.
      await pause(50)
    }
  }
}

function drawn() {
  const at = Math.random() * weights[BUYERS - 1]
  return weights.findIndex((weight) => weight > at) + 1
}

let sum = 0
const weights = Array.from({ length: BUYERS }, (_, rank) => (sum += 1 / (rank + 1)))
const mill = open(config)
const router = mill.router('orders')
const numbers = OrderNumbers.open(keys, 'acme', 't_order')
const stored = new Shards(router, places, { tables: { t_order: 'order_id' } })
const orders = mill.business('order', { counters: 1024, deadline: '60s' })
const mine = []
writeFileSync(log, '')
while (!existsSync(`${log}.stop`)) {
  let order
  const isNew = mine.length === 0 || Math.random() >= 0.2
  if (isNew) {
    const buyer = drawn()
    const id = await orders.nextAsync(buyer)
    order = { id, number: numbers.seal(id), buyer, version: 1, created: Date.now() }
  } else {
    order = mine[Math.floor(Math.random() * mine.length)]
    order.version += 1
  }
  const shard = await write(order.id, [order.id, order.number, numbers.version, order.buyer, order.version, order.created])
  appendFileSync(log, `${Date.now()} ${isNew ? 'placed' : 'changed'} ${order.id} ${order.number.toString('hex')} ${order.buyer} ${order.version} ${shard}\n`)
  if (isNew) mine.push(order)
  const one = mine[Math.floor(Math.random() * mine.length)]
  const found = await stored.read(one.id, (connection) => connection.query(READ, [one.id])).catch(() => undefined)
  if (found !== undefined && Number(found[0][0]?.version) !== one.version) {
    appendFileSync(log, `WRONG ${one.id} version ${one.version}, read ${JSON.stringify(found[0])}\n`)
  }
  await pause(5)
}
mill.close()
for (const pool of Object.values(places)) await pool.end()
