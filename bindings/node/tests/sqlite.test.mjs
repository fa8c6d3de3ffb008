// A SQLite file is keymill's own. better-sqlite3 and node:sqlite are each a second SQLite library in the process.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test } from 'node:test'
import { open } from 'keymill'
import { libraries, skip } from './libraries.mjs'
import { run, scratch } from './support.mjs'

for (const [library, connect] of Object.entries(libraries)) {
  test(`a file that ${library} has open is refused until ${library} closes it`, { skip }, () => {
    const path = join(scratch(), 'ids.db')
    const mill = open(`sqlite:${path}`)
    const orders = mill.segment('orders', { step: 10, max_step: 10, deadline: '60s' })
    const ids = orders.take(5)
    const beside = connect(path)
    assert.equal(beside.prepare('SELECT count(*) AS rows FROM keymill_segment').get().rows, 1)
    const until = Date.now() + 30_000
    const refused = () => {
      while (Date.now() < until) ids.push(...orders.take(5))
    }
    assert.throws(refused, { code: 'STORE_UNSAFE', message: /name a file of keymill's own/ })
    const other = open(`sqlite:${path}?busy=3s`)
    assert.throws(() => other.segment('orders').next(), { code: 'STORE_UNSAFE' })
    other.close()
    beside.close()
    // A refusal is remembered for a moment, and a caller in that moment is told it again.
    const end = Date.now() + 30_000
    for (let served = false; !served; ) {
      try {
        ids.push(...orders.take(5))
        served = true
      } catch (e) {
        assert.ok(Date.now() < end, String(e))
      }
    }
    assert.equal(new Set(ids).size, ids.length)
    mill.close()
  })

  test(`${library} in three processes beside keymill costs no id and no row where that is accepted`, { skip }, async () => {
    const rounds = 100
    const path = join(scratch(), 'ids.db')
    const mill = open(`sqlite:${path}?durability=warn`)
    const ids = mill.segment('orders', { step: 5, max_step: 5 }).take(5).map(String)
    mill.close()
    const app = connect(path)
    app.exec('CREATE TABLE app (id INTEGER PRIMARY KEY, text)')
    app.close()
    const config = `sqlite:${path}?durability=warn&busy=5s`
    const processes = Array.from({ length: 3 }, () => run('beside.mjs', [config, path, library, String(rounds)]).done)
    for (const { code, out, err } of await Promise.all(processes)) {
      assert.equal(code, 0, err)
      ids.push(...out.trim().split(' '))
    }
    assert.equal(ids.length, 5 + 3 * rounds * 5)
    assert.equal(new Set(ids).size, ids.length, 'an id came twice')
    const end = connect(path)
    assert.equal(end.prepare('SELECT count(*) AS rows FROM app').get().rows, 3 * rounds)
    assert.equal(end.prepare('PRAGMA integrity_check').get().integrity_check, 'ok')
    end.close()
  })
}
