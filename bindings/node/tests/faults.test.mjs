// Processes killed, a server killed, signals in a wait. The server is the one of `ci/servers/mariadb`.
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { open } from 'keymill'
import { blackHole, run, scratch, until } from './support.mjs'

const server = process.env.KEYMILL_TEST_MYSQL
const skip = server === undefined && 'KEYMILL_TEST_MYSQL names no server'
const own = `node_${process.pid}_${Date.now()}`
const mariadb = (verb) => execFileSync(join(process.env.KEYMILL_ROOT, 'ci', 'servers', 'mariadb'), [verb], { stdio: 'ignore' })
const init = (...specs) => execFileSync('keymill', ['--mill', server, 'init', ...specs])

test('a table that is missing is told with the command that makes it', { skip }, async () => {
  const mill = open(server)
  const no = mill.serial(`missing_${own}`, 'id', { table: `missing_${own}` })
  await assert.rejects(no.nextAsync(), { code: 'STORE_REFUSED', message: /`KEYMILL_CONFIG='mysql:\/\/USER:PASSWORD@[\w.:/]+' keymill init 'serial:[^']*'`/ })
  assert.throws(() => no.next(), { code: 'STORE_REFUSED' })
  mill.close()
})

test('processes killed at random leave no duplicate', { skip }, async (t) => {
  const folder = scratch()
  const specs = [`segment:${own}?min_step=50&max_step=500&deadline=60s`, `serial:${own}/id?number=000000000&step=100&deadline=60s`]
  init(...specs)
  const logs = []
  let kills = 0
  /** One process after the other, each killed amid its work. */
  const lane = async (lane) => {
    for (let turn = 0; turn < 10; turn++) {
      const spec = specs[(lane + turn) % 2]
      const log = join(folder, `${lane}-${turn}`)
      logs.push({ spec, log })
      const { child, done } = run('taker.mjs', [server, spec, log, String(turn % 3)])
      const enough = 200 + Math.random() * 3000
      await until(() => child.exitCode !== null || ids(log).length > enough)
      assert.equal(child.exitCode, null, 'it was to run until it is killed')
      child.kill('SIGKILL')
      kills++
      await done
    }
  }
  await Promise.all([0, 1, 2].map(lane))
  let all = 0
  for (const spec of specs) {
    const union = logs.filter((it) => it.spec === spec).flatMap(({ log }) => ids(log))
    assert.equal(new Set(union).size, union.length, spec)
    all += union.length
  }
  assert.equal(kills, 30)
  t.diagnostic(`kills ${kills}, ids ${all}, duplicates 0`)
})

/** The whole lines of a log: no caller was given what the kill cut off. */
function ids(log) {
  let text = ''
  try {
    text = readFileSync(log, 'utf8')
  } catch {}
  return text.split('\n').slice(0, -1)
}

test('a server that is down for ten seconds: none notices within the runway, then the code, then it heals', { skip }, async (t) => {
  init(`segment:${own}_long`)
  const mill = open(`${server}?connect_timeout=1s&timeout=1s`)
  // Seven ids in two milliseconds at most: these last, whatever rate a busy machine had before.
  const long = mill.segment(`${own}_long`, { min_step: 10_000_000, deadline: '1s' })
  const short = mill.segment(`${own}_short`, { step: 10, max_step: 10, buffer: '1ms', deadline: '400ms' })
  const seen = new Set()
  let count = 0
  const keep = (id, source = long) => {
    seen.add(`${source.label} ${id}`)
    count++
  }
  let load = true
  const codes = new Map()
  let slowest = 0
  let healed = 0
  let down = false
  // The first number comes from the store, which may be slow.
  await until(() => long.nextAsync().then(keep, () => false).then((got) => got !== false), 180_000)
  const running = [
    (async () => {
      // No `catch`: any error of a source with a runway fails the test.
      for (let i = 0; load; i++) {
        keep(long.next())
        keep(await long.nextAsync())
        for (const id of await long.takeAsync(5)) keep(id)
        await new Promise((done) => setTimeout(done, 2))
      }
    })(),
    ...Array.from({ length: 4 }, async () => {
      while (load) {
        const began = performance.now()
        try {
          keep(await short.nextAsync(), short)
          if (!down && codes.size > 0) healed++
        } catch (e) {
          assert.ok(down || performance.now() - restarted < 240_000, `${e.code} while the server is up`)
          codes.set(e.code, (codes.get(e.code) ?? 0) + 1)
          slowest = Math.max(slowest, performance.now() - began)
        }
        await new Promise((done) => setTimeout(done, 2))
      }
    }),
  ]
  let restarted = 0
  const failure = Promise.all(running)
  failure.catch(() => {})
  // Until what is in memory lasts, at the rate that is really taken.
  const began = performance.now()
  await until(() => {
    const { issued, left } = long.stats()
    return left > 22 * (issued / ((performance.now() - began) / 1000)) && issued > 2000
  }, 240_000)
  mariadb('kill')
  down = true
  await new Promise((done) => setTimeout(done, 10_000))
  mariadb('start')
  down = false
  restarted = performance.now()
  await until(() => healed > 20 || !load, 240_000)
  load = false
  await failure
  assert.equal(seen.size, count)
  assert.ok(codes.size > 0)
  for (const code of codes.keys()) assert.match(code, /^(STORE_UNAVAILABLE|DEADLINE)$/)
  // The machine may be busy; the server is away for longer.
  assert.ok(slowest < 400 + 8000, `an error came after ${slowest} ms`)
  t.diagnostic(`outage 10 s: ${count} ids, no duplicate; without a runway ${JSON.stringify(Object.fromEntries(codes))}, the slowest after ${Math.round(slowest)} ms`)
  mill.close()
})

test('a signal ends a process that waits, at once', async () => {
  const hole = await blackHole()
  for (const how of ['next', 'nextAsync', 'takeAsync', 'keys']) {
    let told
    const ready = new Promise((done) => (told = done))
    const { child, done } = run('waiter.mjs', [`mysql://a@127.0.0.1:${hole.port}/ids?connect_timeout=30s`, how], { onLine: () => told() })
    await ready
    const began = performance.now()
    child.kill('SIGINT')
    const { signal } = await done
    assert.equal(signal, 'SIGINT')
    assert.ok(performance.now() - began < 25_000, `${how}: ${performance.now() - began} ms`)
  }
  hole.end()
})

test('an exception amid a wait leaves the source as usable as before', async () => {
  const mill = open('memory:')
  const ids = mill.segment('thrown', { step: 10, max_step: 10 })
  const loop = async () => {
    for await (const id of ids) if (id > 25n) throw new Error('of the caller')
  }
  await assert.rejects(loop(), /of the caller/)
  await assert.rejects(Promise.all([ids.takeAsync(100), Promise.reject(new Error('other'))]), /other/)
  const before = ids.next()
  assert.ok((await ids.nextAsync()) > before)
  mill.close()
})
