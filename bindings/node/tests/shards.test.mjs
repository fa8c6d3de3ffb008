// Writes on two databases while a range moves from one to the other.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { test } from 'node:test'
import { promisify } from 'node:util'
import { KeymillError, Router, Shards } from 'keymill'
import { run, scratch, until } from './support.mjs'
import { ask, DRIVERS, missing, TABLES, TwoShards } from './two-shards.mjs'

const require = createRequire(import.meta.url)
const FIRST = 7n << 47n
const STAYING = 'version = 1\n[[range]]\nupper = 65535\nshard = "s1"\n'
const MOVING = `${STAYING}to = "s2"\n`
const is = (code, says) => (e) => e instanceof KeymillError && e.code === code && (says === undefined || e.message.includes(says))

async function insert(client, id) {
  await ask(client, 'INSERT INTO t_order (order_id, note) VALUES (?, ?)', [id, '100 % café'])
  await ask(client, 'INSERT INTO t_item (item_of, n, seat) VALUES (?, 1, ?), (?, 2, ?)', [id, id, id, -id])
  return id
}

/** A test on two shards, once for each driver. */
function each(sentence, body, drivers = DRIVERS) {
  for (const driver of drivers) {
    test(`${driver}: ${sentence}`, { skip: missing(driver) }, async () => {
      const two = await TwoShards.made(driver)
      try {
        await body(two)
      } finally {
        await two.close()
      }
    })
  }
}
const shardsOf = (two, router, more = {}) => new Shards(router, two.both(), { tables: TABLES, ...more })

each('a write makes the rows of its id the same on both shards', async (two) => {
  const shards = shardsOf(two, Router.fromText(MOVING))
  assert.equal(await shards.write(FIRST, (client) => insert(client, FIRST)), FIRST)
  const rows = await two.all(0)
  assert.deepEqual(rows, [[`${FIRST} 100 % café 0`], [`${FIRST} 1 ${FIRST} null`, `${FIRST} 2 ${-FIRST} null`]])
  assert.deepEqual(await two.all(1), rows)
  // Two rows exchange a value that only one row may have.
  await shards.write(FIRST, async (client) => {
    for (const [n, seat] of [[1, null], [2, FIRST], [1, -FIRST]]) await ask(client, 'UPDATE t_item SET seat = ? WHERE n = ?', [seat, n])
  })
  assert.equal((await two.all(0))[1][1], `${FIRST} 2 ${FIRST} null`)
  assert.deepEqual(await two.all(1), await two.all(0))
  assert.deepEqual((await shards.read(FIRST, (client) => ask(client, 'SELECT COUNT(*) FROM t_item'))).map((row) => row.map(String)), [['2']])
  await shards.write(FIRST, async (client) => {
    await ask(client, 'DELETE FROM t_item')
    await ask(client, 'DELETE FROM t_order')
  })
  assert.deepEqual([await two.all(0), await two.all(1)], [[[], []], [[], []]])
})

each('a work that throws leaves nothing, its error comes back, and the connection serves the next write', async (two) => {
  for (const table of [MOVING, STAYING]) {
    const pools = { s1: two.pool(0, { max: 1, connectionLimit: 1 }), s2: two.pool(1) }
    const shards = new Shards(Router.fromText(table), pools, { tables: TABLES })
    const error = new Error('none is free')
    const clients = []
    const fails = async (client) => {
      clients.push(client.connection ?? client)
      await insert(client, FIRST)
      throw error
    }
    await assert.rejects(shards.write(FIRST, fails), (e) => e === error)
    await assert.rejects(shards.write(FIRST, fails), (e) => e === error)
    assert.equal(clients[0], clients[1])
    // The driver's own, of a row that is there twice.
    await assert.rejects(
      shards.write(FIRST, async (client) => {
        await insert(client, FIRST)
        await insert(client, FIRST)
      }),
      (e) => !(e instanceof KeymillError) && ['ER_DUP_ENTRY', '23505'].includes(e.code),
    )
    assert.deepEqual([await two.all(0), await two.all(1)], [[[], []], [[], []]])
  }
})

each('a work that does not wait for its statements, or leaves rows unread, ends within the deadline, and the next write goes on', async (two) => {
  const sleep = two.driver === 'pg' ? 'SELECT pg_sleep(4)' : 'SELECT SLEEP(4)'
  const works = { waits: (client) => void ask(client, sleep).catch(() => undefined) }
  if (two.driver !== 'pg') {
    works.reads = async (client) => {
      // How long the server waits for a session that reads no more.
      await ask(client, 'SET SESSION net_write_timeout = 2')
      const raw = client.promise ? client : client.connection
      const rows = raw.query('SELECT a.seq FROM seq_1_to_300 a JOIN seq_1_to_300 b JOIN seq_1_to_30 c').stream()
      rows.on('error', () => undefined)
      await new Promise((done) => rows.once('data', () => (rows.pause(), done())))
    }
  }
  for (const table of [MOVING, STAYING]) {
    for (const [name, work] of Object.entries(works)) {
      const shards = shardsOf(two, Router.fromText(table), { deadline: '500ms' })
      const began = performance.now()
      const left = shards.write(FIRST, async (client) => {
        await insert(client, FIRST)
        await work(client)
      })
      await assert.rejects(left, is('INVALID_ARGUMENT', 'left rows of a result unread on shard `s1`'), name)
      assert.ok(performance.now() - began < 15_000, name)
      // The server may notice the end of the session after its statement only.
      const next = shardsOf(two, Router.fromText(table), { deadline: '60s' })
      await next.write(FIRST, async (client) => {
        assert.deepEqual(await ask(client, 'SELECT n FROM t_item'), [])
      })
      assert.deepEqual([await two.all(0), await two.all(1)], [[[], []], [[], []]])
    }
  }
})

each('a statement that runs on after the work has failed writes nothing', async (two) => {
  for (const table of [MOVING, STAYING]) {
    const pools = { s1: two.pool(0, { max: 1, connectionLimit: 1 }), s2: two.pool(1) }
    const shards = new Shards(Router.fromText(table), pools, { tables: TABLES })
    const fails = async (client) => {
      const slow = ask(client, two.driver === 'pg' ? 'SELECT pg_sleep(0.2)' : 'SELECT SLEEP(0.2)')
      const branch = slow.then(() => insert(client, FIRST)).catch(() => undefined)
      await Promise.all([Promise.reject(new Error('none is free')), branch])
    }
    await assert.rejects(shards.write(FIRST, fails), /none is free/)
    await new Promise((done) => setTimeout(done, 500))
    await shards.write(FIRST + 1n, (client) => insert(client, FIRST + 1n))
    assert.equal((await two.all(0))[0].length, 1)
    await shards.write(FIRST + 1n, async (client) => {
      await ask(client, 'DELETE FROM t_item')
      await ask(client, 'DELETE FROM t_order')
    })
  }
})

each('a work that releases its client is refused, and nobody else gets it meanwhile', async (two) => {
  for (const table of [MOVING, STAYING]) {
    const pools = { s1: two.pool(0, { max: 1, connectionLimit: 1 }), s2: two.pool(1) }
    const shards = new Shards(Router.fromText(table), pools, { tables: TABLES })
    const releases = shards.write(FIRST, async (client) => {
      await insert(client, FIRST)
      client.release()
    })
    const other = shards.write(FIRST + 1n, (client) => insert(client, FIRST + 1n))
    await assert.rejects(releases, is('INVALID_ARGUMENT', 'do not release it'))
    await other
    assert.equal((await two.all(0))[0].length, 1)
    await shards.write(FIRST + 1n, async (client) => {
      await ask(client, 'DELETE FROM t_item')
      await ask(client, 'DELETE FROM t_order')
    })
  }
})

each('a pool that gives no connection is waited for until the deadline', async (two) => {
  const pool = two.pool(0, { max: 1, connectionLimit: 1 })
  const shards = new Shards(Router.fromText(STAYING), { s1: pool }, { tables: TABLES, deadline: '500ms' })
  await shards.write(FIRST, async (client) => {
    await insert(client, FIRST)
    await assert.rejects(shards.read(FIRST, () => undefined), is('STORE_UNAVAILABLE', 'no connection within the deadline'))
  })
  // What came late went back to the pool.
  await shards.write(FIRST + 1n, (client) => insert(client, FIRST + 1n))
  assert.equal((await two.all(0))[0].length, 2)
})

test('a process whose server refuses connections ends before the deadline of its write', async () => {
  const table = JSON.stringify(STAYING)
  const program = `
    const { Router, Shards } = require('keymill')
    const pool = { promise() {}, getConnection: (told) => setImmediate(told, Object.assign(new Error('refused'), { fatal: true })) }
    const shards = new Shards(Router.fromText(${table}), { s1: pool }, { tables: { t: 'id' }, deadline: '300s' })
    shards.write(1n, () => 1).catch((e) => console.log(e.code))`
  const { stdout } = await promisify(execFile)(process.execPath, ['-e', program], { timeout: 120_000 })
  assert.equal(stdout.trim(), 'STORE_UNAVAILABLE')
})

each('what a read writes is rolled back', async (two) => {
  const shards = shardsOf(two, Router.fromText(MOVING))
  await shards.read(FIRST, (client) => insert(client, FIRST))
  assert.deepEqual([await two.all(0), await two.all(1)], [[[], []], [[], []]])
})

each('a step that comes in between runs the work again', async (two) => {
  const router = Router.fromText(MOVING)
  let runs = 0
  await shardsOf(two, router).write(FIRST, async (client) => {
    await insert(client, FIRST)
    runs++
    router.load('version = 2\n[[range]]\nupper = 65535\nshard = "s2"\n')
  })
  assert.equal(runs, 2)
  assert.deepEqual(await two.all(0), [[], []])
  assert.equal((await two.all(1))[1].length, 2)
})

each('writes of one id come one after the other', async (two) => {
  const shards = shardsOf(two, Router.fromText(MOVING), { deadline: '120s' })
  await shards.write(FIRST, (client) => insert(client, FIRST))
  const count = async (client) => {
    const [[version]] = await ask(client, 'SELECT version FROM t_order WHERE order_id = ? FOR UPDATE', [FIRST])
    await ask(client, 'UPDATE t_order SET version = ? WHERE order_id = ?', [Number(version) + 1, FIRST])
  }
  const many = async () => {
    for (let i = 0; i < 10; i++) await shards.write(FIRST, count)
  }
  await Promise.all([many(), many(), many(), many()])
  for (const at of [0, 1]) assert.deepEqual((await two.all(at))[0], [`${FIRST} 100 % café 40`])
})

each('without a move one connection is opened, and no table is looked at', async (two) => {
  const shards = new Shards(Router.fromText(STAYING), { s1: two.pool(0) }, { tables: { no_such_table: 'id' } })
  await shards.write(FIRST, (client) => insert(client, FIRST))
  assert.deepEqual((await two.all(0))[1].length, 2)
})

each('a connection that breaks in the work is replaced, and nothing is left', async (two) => {
  const shards = shardsOf(two, Router.fromText(MOVING))
  const kill = two.driver === 'pg' ? 'SELECT pg_terminate_backend(pg_backend_pid())' : 'KILL CONNECTION_ID()'
  await assert.rejects(
    shards.write(FIRST, async (client) => {
      await insert(client, FIRST)
      await ask(client, kill)
    }),
  )
  assert.deepEqual([await two.all(0), await two.all(1)], [[[], []], [[], []]])
  await shards.write(FIRST, (client) => insert(client, FIRST))
  assert.deepEqual(await two.all(1), await two.all(0))
})

each(
  'a connection that ends while the work does something else ends no process',
  async (two) => {
    const shards = shardsOf(two, Router.fromText(STAYING))
    let ended = false
    const write = shards.write(FIRST, async (client) => {
      await insert(client, FIRST)
      const [[pid]] = await ask(client, 'SELECT pg_backend_pid()')
      client.once('end', () => (ended = true))
      await two.ask(1, `SELECT pg_terminate_backend(${pid})`)
      await until(() => ended)
    })
    await assert.rejects(write, is('STORE_UNAVAILABLE', 'not acknowledged'))
    await shards.write(FIRST, (client) => insert(client, FIRST))
    assert.equal((await two.all(0))[1].length, 2)
  },
  ['pg'],
)

test('pg: a session that the server ends with the login ends no process', { skip: missing('pg') }, async () => {
  const message = (kind, body) => {
    const head = Buffer.from(`${kind}    `)
    head.writeInt32BE(4 + body.length, 1)
    return Buffer.concat([head, Buffer.from(body)])
  }
  const ends = message('E', 'SFATAL\0VFATAL\0C57P01\0Mterminating connection due to administrator command\0\0')
  const login = Buffer.concat([message('R', '\0\0\0\0'), message('Z', 'I'), ends])
  const server = createServer((socket) => socket.on('error', () => {}).once('data', () => socket.end(login)))
  await new Promise((up) => server.listen(0, '127.0.0.1', up))
  const { Pool } = require('pg')
  const pool = new Pool({ host: '127.0.0.1', port: server.address().port, user: 'shop', database: 'shop' })
  const shards = new Shards(Router.fromText(STAYING), { s1: pool }, { tables: TABLES })
  await assert.rejects(shards.write(FIRST, (client) => insert(client, FIRST)), is('STORE_UNAVAILABLE', 'nothing was written'))
  await pool.end()
  server.close()
})

each(
  'a failure that the work hides is not acknowledged',
  async (two) => {
    for (const table of [MOVING, STAYING]) {
      const write = shardsOf(two, Router.fromText(table)).write(FIRST, async (client) => {
        await insert(client, FIRST)
        await ask(client, 'SELECT 1 / 0').catch(() => {})
      })
      await assert.rejects(write, is('INVALID_ARGUMENT', 'nothing was written'))
      assert.deepEqual([await two.all(0), await two.all(1)], [[[], []], [[], []]])
    }
  },
  ['pg'],
)

each('a connection is given back as it was', async (two) => {
  if (two.driver === 'pg') return
  const pools = { s1: two.pool(0, { connectionLimit: 1 }), s2: two.pool(1, { connectionLimit: 1 }) }
  const shards = new Shards(Router.fromText(MOVING), pools, { tables: TABLES })
  for (const shard of ['s1', 's2']) {
    const staying = new Shards(Router.fromText(STAYING.replace('s1', shard)), pools, { tables: TABLES })
    await staying.read(FIRST, (client) => ask(client, "SET time_zone = '+03:00', sql_mode = 'ANSI_QUOTES'"))
  }
  await shards.write(FIRST, (client) => insert(client, FIRST))
  for (const shard of ['s1', 's2']) {
    const staying = new Shards(Router.fromText(STAYING.replace('s1', shard)), pools, { tables: TABLES })
    assert.deepEqual(await staying.read(FIRST, (client) => ask(client, 'SELECT @@time_zone, @@sql_mode, @@autocommit')), [['+03:00', 'ANSI_QUOTES', '1']])
  }
})

each('what cannot be is named', async (two) => {
  const router = Router.fromText(MOVING)
  const nothing = () => {}
  const pool = two.pool(0)
  const over = (pools, tables = TABLES) => new Shards(router, pools, { tables })
  await assert.rejects(over({ s1: pool }).write(FIRST, nothing), is('INVALID_CONFIG', 'names shard `s2`, for which there is no connection'))
  await assert.rejects(over({ s1: pool, s2: pool }).write(FIRST, nothing), is('INVALID_CONFIG', 'is given the connection of shard `s1`'))
  await assert.rejects(shardsOf(two, router, { tables: { none: 'id' } }).write(FIRST, nothing), is('STORE_REFUSED', 'no table `none`'))
  for (const wrong of [undefined, 'mysql://', {}, { connect: nothing, query: nothing }, { getConnection: nothing }]) assert.throws(() => over({ s1: wrong }), is('INVALID_CONFIG', 'is no pool of mysql2 or pg'))
  assert.throws(() => over({ s1: pool }, {}), is('INVALID_CONFIG', 'no table is named'))
  for (const deadline of ['soon', 15, '-1s']) assert.throws(() => shardsOf(two, router, { deadline }), is('INVALID_ARGUMENT', 'deadline must be'))
  assert.throws(() => new Shards({}, { s1: pool }, { tables: TABLES }), is('INVALID_ARGUMENT', 'a router is opened by'))
  const shards = shardsOf(two, router)
  for (const id of ['5', -1n, 2n ** 63n, new Uint8Array(7)]) await assert.rejects(shards.write(id, nothing), is('INVALID_ARGUMENT'))
  await assert.rejects(shards.write(FIRST), is('INVALID_ARGUMENT', 'the work is a function'))
  await assert.rejects(shards.write(FIRST, () => shards.write(FIRST + 1n, nothing)), is('INVALID_ARGUMENT', 'inside another one'))
  const paused = shardsOf(two, Router.fromText(`${MOVING}percent = 100\npaused = true\n`), { deadline: '200ms' })
  await assert.rejects(paused.write(FIRST, nothing), is('NOT_READY', 'writes of this range wait'))
})

each('what a write has begun may write after it', async (two) => {
  const shards = shardsOf(two, Router.fromText(MOVING))
  let go
  let later
  await shards.write(FIRST, (client) => {
    later = new Promise((done) => (go = done)).then(() => shards.write(FIRST + 1n, (client) => insert(client, FIRST + 1n)))
    return insert(client, FIRST)
  })
  go()
  assert.equal(await later, FIRST + 1n)
})

each(
  'Drizzle writes to both shards',
  async (two) => {
    const drizzlePart = (name) => require(`drizzle-orm/${name}`)
    const is_pg = two.driver === 'pg'
    const { drizzle } = drizzlePart(is_pg ? 'node-postgres' : 'mysql2')
    const { bigint, varchar, ...kinds } = drizzlePart(is_pg ? 'pg-core' : 'mysql-core')
    const order = (is_pg ? kinds.pgTable : kinds.mysqlTable)('t_order', { id: bigint('order_id', { mode: 'bigint' }).primaryKey(), note: varchar('note', { length: 40 }) })
    const shards = shardsOf(two, Router.fromText(MOVING))
    await shards.write(FIRST, (client) => drizzle(client).insert(order).values({ id: FIRST, note: 'by Drizzle' }))
    // Its error wraps the driver's.
    await assert.rejects(shards.write(FIRST, (client) => drizzle(client).insert(order).values({ id: FIRST, note: 'again' })), (e) => e.constructor.name === 'DrizzleQueryError')
    assert.deepEqual(await two.all(0), [[`${FIRST} by Drizzle 0`], []])
    assert.deepEqual(await two.all(1), await two.all(0))
    assert.deepEqual(await shards.read(FIRST, (client) => drizzle(client).select({ note: order.note }).from(order)), [{ note: 'by Drizzle' }])
  },
  ['mysql2', 'pg'],
)

const command = promisify(execFile)
/** All in `ci/test --all`, which sets the variable; otherwise one, because each takes half a minute. */
const drivers_of_moves = process.env.KEYMILL_ALL ? DRIVERS : ['mysql2']
each('no acknowledged write is lost while a range moves there and back', async (two) => {
  const folder = scratch()
  const store = `sqlite:${join(folder, 'routes.keymill')}?busy=5s`
  const file = (name, text) => writeFileSync(join(folder, name), text, { mode: 0o600 })
  const type = (...words) => command('keymill', ['--mill', store, ...words], { cwd: folder })
  const step = (verb, ...more) => type('move', verb, 'orders', ...more, '--yes')
  const tables = Object.entries(TABLES).flatMap(([name, key]) => ['--table', name, '--key', key])
  const rows = (verb) => step(verb, ...tables, '--from', 's1=file:s1.toml', '--to', 's2=file:s2.toml', '--wait')
  const cutOver = async () => {
    for (let percent = 0; percent < 4; percent++) await step('next', '--wait')
  }
  file('routes.toml', 'version = 1\nsettle = "200ms"\n[[range]]\nupper = 65535\nshard = "s1"\n')
  for (const at of [0, 1]) file(`s${at + 1}.toml`, `store = "${two.url(at)}"\n`)
  await type('route', 'put', 'orders', 'routes.toml', '--yes')
  const logs = [1, 2].map((seed) => join(folder, `log${seed}`))
  const workers = logs.map((log, at) => run('shards.mjs', [store, two.words(), log, String(at + 1)]))
  try {
    const lines = (log) => (existsSync(log) ? readFileSync(log, 'utf8').split('\n') : [])
    const isOver = () => workers.find(({ child }) => child.exitCode !== null)
    const more = async (log) => {
      const before = lines(log).length
      await until(() => isOver() || lines(log).length > before + 50)
      if (isOver()) assert.fail((await isOver().done).err)
    }
    for (const log of logs) await more(log)
    await type('move', 'plan', 'orders', '--shards', 's1,s2', '--out', 'plan.toml')
    await step('start', '--plan', 'plan.toml', '--watch', '0s', '--wait')
    await rows('copy')
    await rows('verify')
    await cutOver()
    await step('back', '--wait')
    await rows('verify')
    await cutOver()
    await rows('verify')
    await step('finish', '--wait')
    for (const log of logs) await more(log)
    for (const log of logs) writeFileSync(`${log}.stop`, '')
    for (const { done } of workers) {
      const { code, err } = await done
      assert.equal(code, 0, err)
    }
    const said = logs.flatMap(lines)
    const marked = (mark) => new Set(said.filter((line) => line.startsWith(mark)).map((line) => line.slice(mark.length)))
    const [inserted, deleted, perhaps] = [marked('+ '), marked('- '), marked('?- ')]
    const there = new Set((await two.ask(1, 'SELECT item_of, n FROM t_item')).map((row) => row.join(' ')))
    const lost = [...inserted].filter((row) => !deleted.has(row) && !perhaps.has(row) && !there.has(row))
    assert.deepEqual([lost, [...deleted].filter((row) => there.has(row))], [[], []])
    const acknowledged = said.filter((line) => line === 'acknowledged').length
    assert.ok(acknowledged > 100 && inserted.size > 30 && deleted.size > 10, `${acknowledged} writes`)
    console.log(`# ${two.driver}: ${acknowledged} writes acknowledged while a range moved, ${marked('refused').size} refusals, ${inserted.size} rows came, ${deleted.size} went, 0 lost`)
  } finally {
    for (const { child } of workers) child.kill('SIGKILL')
  }
}, drivers_of_moves)
