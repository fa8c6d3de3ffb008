// Orders of a shop whose rows lie on several databases: placed, changed and read again until a file says stop. `shop.py` says the arguments.
//
//     node shop.mjs MILL KEYS SHARDS LOG SEED
import { appendFileSync, existsSync, writeFileSync } from 'node:fs'
import { setTimeout as pause } from 'node:timers/promises'
import { KeymillError, open, OrderNumbers } from 'keymill'
import mysql from 'mysql2/promise'

const BUYERS = 2000
// No value is left to the database: two of them would say different times.
const WRITE = `INSERT INTO t_order (order_id, order_no, order_no_kv, buyer_id, version, created_at)
VALUES (?, ?, ?, ?, ?, FROM_UNIXTIME(? / 1000))
ON DUPLICATE KEY UPDATE version = VALUES(version)`
const COLUMNS = 'order_id, order_no, order_no_kv, buyer_id, version, created_at'
const LOCK = `SELECT ${COLUMNS} FROM t_order WHERE order_id = ? FOR UPDATE`
// What the other shard has, as the one that decides has it.
const SAME = `INSERT INTO t_order (${COLUMNS}) VALUES (?) ON DUPLICATE KEY UPDATE version = VALUES(version)`
const READ = 'SELECT version FROM t_order WHERE order_id = ?'
// A write takes less than `settle` of the route table, or it does not count.
const SETTLE_MS = 2000

const [config, keys, shards, log] = process.argv.slice(2)
const places = new Map(shards.split(',').map((shard) => shard.split('=')))
const connections = new Map()

async function database(shard) {
  if (!connections.has(shard)) {
    const [, host, port, name] = places.get(shard).match(/^(.*):(\d+)\/(.*)$/)
    const connection = await mysql.createConnection({ host, port: Number(port), user: 'keymill', password: 'secret', database: name, connectTimeout: 2000, supportBigNumbers: true, bigNumberStrings: true, dateStrings: true })
    // Otherwise writers of new ids wait for each other's gaps.
    await connection.query('SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED')
    connection.on('error', () => connections.delete(shard))
    connections.set(shard, connection)
  }
  return connections.get(shard)
}

async function ask(shard, sql, values = []) {
  try {
    const [rows] = await (await database(shard)).query({ sql, values, timeout: 2000 })
    return rows
  } catch (error) {
    forget(shard)
    throw error
  }
}

/** Ends the connection, and with it what is not committed. */
function forget(shard) {
  connections.get(shard)?.destroy()
  connections.delete(shard)
}

/** Where an order is now. A process that lost its lease waits until the store has answered it again. */
async function route(id) {
  for (;;) {
    try {
      return router.route(id)
    } catch (error) {
      if (!(error instanceof KeymillError) || error.code !== 'LEASE_LOST') throw error
      await pause(50)
    }
  }
}

/** Writes the order to the shard that decides, and makes the row of the other one the same; again, by a new route, until both are committed. */
async function write(id, row) {
  for (;;) {
    const began = performance.now()
    const place = await route(id)
    if (place.paused) {
      await pause(50)
      continue
    }
    const shards = [place.write, place.mirror].filter((shard) => shard !== undefined)
    try {
      for (const shard of shards) await ask(shard, 'START TRANSACTION')
      await ask(place.write, LOCK, [id])
      await ask(place.write, WRITE, row)
      if (place.mirror !== undefined) {
        const [same] = await ask(place.write, LOCK, [id])
        await ask(place.mirror, LOCK, [id])
        await ask(place.mirror, SAME, [Object.values(same)])
      }
      const counts = place.mirror === undefined ? performance.now() - began < SETTLE_MS : router.isCurrent(place)
      for (const shard of shards) await ask(shard, counts ? 'COMMIT' : 'ROLLBACK')
      if (counts) return place.write
    } catch {
      shards.forEach(forget)
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
  const place = await route(one.id)
  const found = await ask(place.read, READ, [one.id]).catch(() => undefined)
  if (found !== undefined && Number(found[0]?.version) !== one.version) {
    appendFileSync(log, `WRONG ${one.id} version ${one.version}, read ${JSON.stringify(found)} from ${JSON.stringify(place)}\n`)
  }
  await pause(5)
}
mill.close()
for (const connection of connections.values()) connection.destroy()
