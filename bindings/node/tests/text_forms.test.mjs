// Ids as text. What the texts are is in tests/vectors; here JavaScript itself reads them.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { open } from 'keymill'

const ids = []
for (let shift = 0n; shift < 63n; shift++) ids.push((2n ** 63n - 1n) >> shift, ((2n ** 63n - 12345n) >> shift) + 1n)
ids.sort((one, other) => (one < other ? -1 : one > other ? 1 : 0))

test('JavaScript reads base36 texts', () => {
  const orders = open('memory:').segment('orders', { text: 'base36' })
  for (const id of ids) {
    const text = orders.textOf(id)
    assert.equal([...text].reduce((number, c) => number * 36n + BigInt(parseInt(c, 36)), 0n), id)
    assert.equal(text, id.toString(36).padStart(13, '0'))
  }
})

test('texts have the order of their numbers and are read back', () => {
  for (const text of ['crockford', 'base36', 'base62']) {
    const orders = open('memory:').segment('orders', { text, prefix: 'o_' })
    const texts = ids.map((id) => orders.textOf(id))
    assert.deepEqual([...texts].sort(), texts)
    assert.deepEqual(texts.map((text) => orders.parse(text).number), ids)
  }
})

test('every verb writes the form, and a number stays one', async () => {
  const orders = open('memory:').segment('orders', { text: 'base62', prefix: 'o_' })
  assert.equal(orders.nextText(), 'o_00000000001')
  assert.deepEqual(orders.takeText(2), ['o_00000000002', 'o_00000000003'])
  assert.equal(orders.next(), 4n)
  assert.equal(orders.textOf(await orders.nextAsync()), 'o_00000000005')
  assert.deepEqual(orders.parse('o_00000000005'), orders.parse(5n))
  assert.deepEqual(orders.parse(5), orders.parse(5n))
  // Thirteen digits are a number as a number, and the form as a text of its width.
  const crockford = open('memory:').segment('orders', { text: 'crockford' })
  assert.equal(crockford.parse(1_000_000_000_000n).number, 1_000_000_000_000n)
  assert.equal(crockford.parse('1000000000000').number, 2n ** 60n)
})

test('two forms of one source count by themselves', () => {
  const mill = open('memory:')
  const [plain, formed] = [mill.segment('orders'), mill.segment('orders', { text: 'base36' })]
  const all = [...plain.take(2000), ...formed.take(2000), plain.next(), formed.next()]
  assert.equal(new Set(all).size, all.length)
  assert.match(formed.nextText(), /^0{8,}[0-9a-z]+$/)
  assert.match(plain.nextText(), /^[1-9]\d*$/)
})

test('a source of plain numbers has texts', () => {
  const web = open('memory:').snowflake('web', { layout: 'js53', worker: 5, as: 'number', text: 'crockford', prefix: 'w_' })
  const text = web.nextText()
  assert.equal(web.parse(text).worker, 5)
  assert.equal(web.textOf(web.next()).length, text.length)
  assert.equal(web.takeText(3).length, 3)
})

test('ids for keys have texts', () => {
  const orders = open('memory:').business('order', { text: 'base36', prefix: 'ord_' })
  const text = orders.nextText('buyer-42')
  assert.deepEqual(orders.parse(text), { gene: 56443, number: 1n })
  const bytes = Buffer.alloc(8)
  const id = [...text.slice(4)].reduce((number, c) => number * 36n + BigInt(parseInt(c, 36)), 0n)
  bytes.writeBigUInt64BE(id)
  assert.deepEqual(orders.parse(bytes), orders.parse(id))
  assert.equal(orders.textOf(id), text)
  assert.deepEqual(orders.takeText('buyer-42', 2).map((text) => orders.parse(text).number), [2n, 3n])
})

test('what is no id has no text', () => {
  const orders = open('memory:').segment('orders', { text: 'crockford' })
  for (const id of [-1n, 2n ** 64n, 1.5, 2 ** 53, '1', undefined]) {
    assert.throws(() => orders.textOf(id), { code: 'INVALID_ARGUMENT' }, String(id))
  }
})
