// Genes and routers.
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { Router, gene, open } from 'keymill'
import { run, scratch } from './support.mjs'

const table = (version) => `version = ${version}\n[[range]]\nupper = 65535\nshard = "s${version}"\n`
const refused = (code, verb) => assert.throws(verb, (e) => e.code === code, verb.toString())

test('what is no key is refused', () => {
  const router = Router.fromText(table(1))
  for (const key of [null, undefined, 1.5, 2 ** 53, 2n ** 64n, -(2n ** 63n) - 1n, 'k'.repeat(65537), '\ud800', {}, new Uint8Array(8)]) {
    refused('INVALID_ARGUMENT', () => gene(key))
    refused('INVALID_ARGUMENT', () => router.routeKey(key))
  }
})

test('what is no id is refused', () => {
  const router = Router.fromText(table(1))
  for (const id of [null, undefined, '5', -1n, 2n ** 63n, 2n ** 64n, 1.5, new Uint8Array(7), new Uint8Array(0)]) refused('INVALID_ARGUMENT', () => router.route(id))
  for (const id of [null, '5', -1n, 2n ** 63n, 2n ** 127n, 2n ** 128n, 2n ** 200n]) refused('INVALID_ARGUMENT', () => router.routeWide(id))
  refused('INVALID_ARGUMENT', () => new Router())
})

test('ids as bigints and as bytes find the shard of their key', () => {
  const router = Router.fromText(table(3))
  const key = router.routeKey('buyer-42')
  assert.deepEqual(key, { gene: 56443, shard: 's3', read: 's3', write: 's3', paused: false, version: 3 })
  const bytes = (id, size) => Buffer.from(id.toString(16).padStart(2 * size, '0'), 'hex')
  const narrow = (56443n << 47n) | 9n
  const wide = (56443n << 111n) | 9n
  for (const route of [router.route(narrow), router.route(bytes(narrow, 8)), router.route(bytes(wide, 16)), router.routeWide(wide)]) assert.deepEqual(route, key)
  assert.equal(gene(42), gene(42n))
  assert.equal(gene(-1), gene(2n ** 64n - 1n))
})

test('a bad table is refused and the old one stays', () => {
  const router = Router.fromText(table(3))
  for (const text of ['', 'version = 4', table(2), table(3).replace('s3', 'x')]) {
    refused('INVALID_CONFIG', () => router.load(text))
    assert.equal(router.version, 3)
    assert.equal(router.route(1n).shard, 's3')
  }
  assert.equal(router.load(table(3)), false)
  assert.equal(router.load(table(4)), true)
  assert.equal(router.age, undefined)
})

test('a file is read, and a store without the table says so', () => {
  const file = join(scratch(), 'routes.toml')
  refused('INVALID_ARGUMENT', () => Router.open(file))
  writeFileSync(file, table(5))
  assert.equal(Router.open(file).version, 5)
  const mill = open('memory:')
  refused('STORE_REFUSED', () => mill.router('orders'))
  refused('INVALID_ARGUMENT', () => mill.router(null))
  mill.close()
  refused('CLOSED', () => mill.router('orders'))
})

test('a mill follows the table in its store', async () => {
  const folder = scratch()
  const store = `sqlite:${join(folder, 'ids.db')}?durability=warn`
  const put = (version) => {
    const file = join(folder, 'routes.toml')
    writeFileSync(file, table(version))
    execFileSync('keymill', ['--mill', store, 'route', 'put', 'orders', file, '--yes'])
  }
  put(1)
  const mill = open(store)
  const router = mill.router('orders')
  assert.equal(router.routeKey(42).shard, 's1')
  assert.ok(router.age >= 0)
  put(2)
  const deadline = Date.now() + 60_000
  while (router.version < 2 && Date.now() < deadline) await new Promise((done) => setTimeout(done, 50))
  assert.equal(router.route(1n).shard, 's2')
  assert.equal(mill.router('orders').version, 2)
  mill.close()
  assert.equal(router.route(1n).read, 's2')
})

test('a process that ends with an open mill leaves no reader', async () => {
  const folder = scratch()
  const store = `sqlite:${join(folder, 'ids.db')}?durability=warn`
  const file = join(folder, 'routes.toml')
  writeFileSync(file, table(1))
  execFileSync('keymill', ['--mill', store, 'route', 'put', 'orders', file, '--yes'])
  for (const [end, answer] of Object.entries({ returns: 0, exits: 0, throws: 1, 'is terminated': 0 })) {
    const { code, err } = await run('ends-following.mjs', [store, end]).done
    assert.equal(code, answer, err)
    const status = execFileSync('keymill', ['--mill', store, 'move', 'status', 'orders'], { encoding: 'utf8' })
    assert.doesNotMatch(status, /reader:/, end)
  }
})
