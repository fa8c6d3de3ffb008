// Prisma 8's release candidate on PostgreSQL: DATABASE_URL names a database whose schema `public` is this test's own.
import assert from 'node:assert'
import { execFile } from 'node:child_process'
import { readdirSync, readlinkSync, writeFileSync } from 'node:fs'
import test from 'node:test'
import { promisify } from 'node:util'
import postgres from '@prisma/orm-postgres/runtime'
import { open, storeOf } from 'keymill'
import { keymill } from 'keymill/prisma8'

const run = promisify(execFile)
const env = { ...process.env, PRISMA_DISABLE_TELEMETRY: '1' }
const prisma = (...words) => run(process.execPath, ['node_modules/prisma/dist/prisma.js', ...words], { env })
const url = process.env.DATABASE_URL
let contractJson

async function client(work, options) {
  const extension = keymill(options)
  const db = postgres({ contractJson, url, extensions: [extension] })
  try {
    return await work(db.orm.public, extension)
  } finally {
    await db.close()
    await extension.close()
  }
}

test('the contract is emitted, and the database made', async () => {
  await prisma('contract', 'emit')
  contractJson = (await import('./contract.json', { with: { type: 'json' } })).default
  await prisma('db', 'init')
  const mill = open(storeOf(url))
  for (const spec of ['segment:p8-order', 'segment:p8-lines', 'segment:p8-texts', 'serial:p8/no?number=000000']) mill.init(spec)
  mill.close()
})

test('rows get ids, in nested creates too, and an id that is set is kept', () =>
  client(async ({ Order, Line }, extension) => {
    await extension.ready('segment:p8-lines')
    const one = await Order.create({ buyer: 'ann', lines: (line) => line.create([{}, {}]) })
    assert.equal(one.id, 1n)
    assert.match(one.no, /^\d{8}000001$/)
    const lines = await Line.where({ orderId: 1n }).orderBy((line) => line.id.asc()).all()
    assert.deepEqual(lines.map(({ id, text }) => [id, text.slice(0, 3)]), [[2n, 'ln_'], [3n, 'ln_']])
    const two = await Order.create({ id: 10n ** 15n, buyer: 'bob' })
    assert.equal(two.id, 10n ** 15n)
    const more = await Order.createAll([{ buyer: 'x' }, { buyer: 'y' }])
    assert.deepEqual(more.map(({ id }) => id), [2n, 3n])
    const kept = await Order.where({ id: 2n }).update({ buyer: 'z' })
    assert.equal(kept.id, 2n)
  }))

test('two clients, each with a mill of its own, have no id in common', async () => {
  const many = () => client(async ({ Order }) => (await Order.createAll(Array.from({ length: 500 }, () => ({ buyer: 'many' })))).map(({ id }) => id))
  const all = (await Promise.all([many(), many()])).flat()
  assert.equal(new Set(all).size, 1000)
})

test('a client without the extension is refused', () => {
  assert.throws(() => postgres({ contractJson, url }), { code: 'RUNTIME.MISSING_EXTENSION_PACK' })
})

test('an id that is taken while the mill is being opened leaves nothing open', async () => {
  const store = `sqlite:${process.cwd()}/early.db`
  const held = () => readdirSync('/proc/self/fd').filter((fd) => { try { return readlinkSync(`/proc/self/fd/${fd}`).includes('early.db') } catch { return false } }).length
  const ids = []
  for (let round = 0; round < 5; round++) {
    const extension = keymill({ store })
    const ready = extension.ready('segment:early')
    const [{ generate }] = extension.mutationDefaultGenerators()
    ids.push(generate({ spec: 'segment:early', field: 'Order.id', as: 'bigint' }))
    await ready
    await extension.close()
  }
  assert.equal(new Set(ids).size, 5)
  await new Promise((done) => setTimeout(done, 500))
  assert.equal(held(), 0)
})

test('a store that is away is named with the field', () =>
  client(async ({ Order }) => {
    await assert.rejects(Order.create({ buyer: 'no' }), /Order\.(id|no): /)
  }, { store: 'postgres://app:no@127.0.0.1:9/ids' }))

test('a spec or a column that does not fit is refused when the contract is emitted, with model and field', async () => {
  const refused = async (field, words) => {
    writeFileSync('wrong.prisma', `// use prisma-8\nmodel Order {\n  id BigInt @id\n  ${field}\n}\n`)
    const e = await run(process.execPath, ['node_modules/prisma/dist/prisma.js', 'contract', 'emit'], { env: { ...env, CONTRACT: './wrong.prisma' } }).catch((e) => e)
    assert.ok(e instanceof Error, `${field} was taken`)
    assert.match(e.stdout + e.stderr, words)
  }
  await refused('no Int @default(keymill("segment:orders"))', /Order\.no: an id of keymill is a BigInt or a String/)
  await refused('no BigInt @default(keymill("serial:orders/no?number=000000"))', /Order\.no: .*gives texts/)
  await refused('no BigInt @default(keymill("sgment:orders"))', /Order\.no: /)
  await refused('no BigInt @default(keymill("business:orders"))', /Order\.no: .*for a key/)
  await refused('no BigInt @default(keymill("segment:{table}"))', /Order\.no: Prisma 8 does not tell the table/)
  await refused('no BigInt @default(keymill(5))', /Order\.no: write the source as a text/)
})
