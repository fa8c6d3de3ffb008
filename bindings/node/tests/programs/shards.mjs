// Changes a few ids by `Shards` until a file says stop: node shards.mjs STORE SHARDS LOG SEED
import { appendFileSync, existsSync } from 'node:fs'
import { setTimeout } from 'node:timers/promises'
import { open, Shards } from 'keymill'
import { ask, TABLES, TwoShards } from '../two-shards.mjs'

const [store, words, log, seed] = process.argv.slice(2)
const [IDS, FIRST] = [12, 32768n << 47n]
const two = TwoShards.named(words)
const mill = open(store)
const shards = new Shards(mill.router('orders'), two.both(), { tables: TABLES, deadline: '120s' })
let number = Number(seed) * 1_000_000_000
const chance = (most) => Math.floor(Math.random() * most)

async function work(client, id, done) {
  done.length = 0
  const isThere = (await ask(client, 'SELECT order_id FROM t_order WHERE order_id = ? FOR UPDATE', [id])).length > 0
  if (!isThere) await ask(client, 'INSERT INTO t_order (order_id, note) VALUES (?, ?)', [id, `café '${chance(1000)}`])
  const there = (await ask(client, 'SELECT n, seat FROM t_item WHERE item_of = ? ORDER BY n', [id])).map((row) => row.map(String))
  const what = chance(10)
  if (what === 0 && isThere) {
    await ask(client, 'DELETE FROM t_item WHERE item_of = ?', [id])
    await ask(client, 'DELETE FROM t_order WHERE order_id = ?', [id])
    for (const [n] of there) done.push(`- ${id} ${n}`)
  } else if (what === 1 && there.length > 0) {
    const [n] = there[chance(there.length)]
    await ask(client, 'DELETE FROM t_item WHERE item_of = ? AND n = ?', [id, n])
    done.push(`- ${id} ${n}`)
  } else if (what <= 3 && there.length > 1) {
    // Two rows exchange a value that only one row may have.
    const [[one, first], [other, second]] = [there.at(0), there.at(-1)]
    for (const [n, seat] of [[one, null], [other, first], [one, second]]) await ask(client, 'UPDATE t_item SET seat = ? WHERE item_of = ? AND n = ?', [seat, id, n])
  } else if (what <= 5) await ask(client, 'UPDATE t_order SET version = version + 1, note = ? WHERE order_id = ?', [`100 % of ${chance(1000)}`, id])
  else {
    const n = number++
    await ask(client, 'INSERT INTO t_item (item_of, n, seat, name) VALUES (?, ?, ?, ?)', [id, n, n, `名${n}`])
    done.push(`+ ${id} ${n}`)
  }
}

// At most so long does a writer pause between two writes: in the short run it leaves processors to other steps.
const PAUSE_MS = process.env.KEYMILL_ALL ? 0 : 20

async function writer() {
  const done = []
  while (!existsSync(`${log}.stop`)) {
    await setTimeout(chance(PAUSE_MS + 1))
    const id = FIRST + BigInt(chance(IDS))
    try {
      await shards.write(id, (client) => work(client, String(id), done))
      appendFileSync(log, `${done.join('\n')}\nacknowledged\n`)
    } catch (error) {
      // Without a move nothing locks an id that is not there yet: two writers insert it.
      if (!['STORE_UNAVAILABLE', 'NOT_READY', 'ER_DUP_ENTRY', '23505'].includes(error.code)) throw error
      appendFileSync(log, `${done.filter((line) => line.startsWith('-')).map((line) => `?${line}`).join('\n')}\nrefused ${error.message}\n`)
    }
  }
}
await Promise.all([writer(), writer(), writer()])
await two.close()
mill.close()
