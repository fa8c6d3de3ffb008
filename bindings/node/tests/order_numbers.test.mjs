// Order numbers: what ids are called outside.
import assert from 'node:assert/strict'
import { chmodSync, writeFileSync } from 'node:fs'
import { inspect } from 'node:util'
import { join } from 'node:path'
import { test } from 'node:test'
import { KeymillError, OrderNumbers, Router } from 'keymill'
import { scratch } from './support.mjs'

const ID = 7943646055239778305n
const SECRET = Buffer.from(Array.from({ length: 32 }, (_, at) => at))
const SEALED = Buffer.from('dc7b01f1c8d4fe953d9eb31ef9339b6b', 'hex')
const numbers = OrderNumbers.fromKeys({ 1: SECRET }, 1, 'acme', 'orders')
const refused = (code, verb) => assert.throws(verb, (e) => e instanceof KeymillError && e.code === code && !e.message.includes('00010203'), verb.toString())

test('keys come from a private file, the environment or the caller', () => {
  const file = join(scratch(), 'keys.toml')
  refused('INVALID_ARGUMENT', () => OrderNumbers.open(file))
  writeFileSync(file, `seal_with = 1\n[key]\n1 = "${SECRET.toString('hex')}"\n`, { mode: 0o600 })
  for (const opened of [OrderNumbers.open(file, 'acme', 'orders'), OrderNumbers.fromKeys(new Map([[1, SECRET]]), 1, 'acme', 'orders')]) {
    assert.deepEqual(opened.seal(ID), SEALED)
    assert.equal(opened.version, 1)
  }
  assert.notDeepEqual(OrderNumbers.open(file).seal(ID), SEALED)
  refused('INVALID_CONFIG', () => OrderNumbers.fromEnv())
  chmodSync(file, 0o644)
  assert.throws(() => OrderNumbers.open(file), (e) => e.code === 'INVALID_CONFIG' && e.message.includes('chmod 600'))
})

test('a runtime that denies its environment leaves the keys of the process', () => {
  const env = process.env
  const denied = { get: () => { throw new Error('denied') } }
  Object.defineProperty(process, 'env', { configurable: true, value: new Proxy({}, denied) })
  try {
    refused('INVALID_CONFIG', () => OrderNumbers.fromEnv())
  } finally {
    Object.defineProperty(process, 'env', { configurable: true, value: env })
  }
})

test('a changed number is forged', () => {
  const changed = Buffer.from(SEALED)
  changed[9] ^= 4
  refused('FORGED', () => numbers.unseal(changed))
  refused('FORGED', () => numbers.unsealAll([SEALED, changed]))
  refused('FORGED', () => numbers.unsealWide(SEALED))
  assert.equal(numbers.unseal(new Uint8Array(SEALED)), ID)
})

test('a batch is what one by one gives', () => {
  const ids = Array.from({ length: 300 }, (_, at) => (BigInt(at) << 47n) + BigInt(at))
  const sealed = numbers.sealAll(ids)
  assert.deepEqual(sealed, ids.map((id) => numbers.seal(id)))
  assert.deepEqual(numbers.sealAll(BigUint64Array.from(ids)), sealed)
  assert.deepEqual(numbers.unsealAll(sealed), ids)
  assert.deepEqual(numbers.unseal8All(numbers.seal8All(ids)), ids)
  assert.deepEqual(numbers.sealAll([5]), [numbers.seal(5n)])
})

test('what is no id, no key and no order number is refused', () => {
  for (const id of [null, undefined, '5', -1, -1n, 2n ** 63n, 2n ** 64n, 1.5, SEALED]) {
    for (const verb of ['seal', 'seal8', 'sealText', 'seal8Text']) refused('INVALID_ARGUMENT', () => numbers[verb](id))
    refused('INVALID_ARGUMENT', () => numbers.sealAll([1n, id]))
    refused('INVALID_ARGUMENT', () => numbers.seal8All([1n, id]))
  }
  for (const id of [null, '5', -1n, 2n ** 63n, 2n ** 127n, 2n ** 200n]) refused('INVALID_ARGUMENT', () => numbers.sealWide(id))
  for (const orderNo of [null, undefined, '5', 5n, Buffer.alloc(0), Buffer.alloc(8), Buffer.alloc(16), [1, 2]]) {
    refused('INVALID_ARGUMENT', () => numbers.unseal(orderNo))
    refused('INVALID_ARGUMENT', () => numbers.unsealWide(orderNo))
    refused('INVALID_ARGUMENT', () => numbers.unsealAll([SEALED, orderNo]))
  }
  for (const value of [null, 5, 'a']) for (const verb of ['sealAll', 'unsealAll', 'seal8All', 'unseal8All']) refused('INVALID_ARGUMENT', () => numbers[verb](value))
  for (const text of [null, 5n, '', '\ud800', '6WFC0Z3J6MZTAKV7NK3VWK76VU']) refused('INVALID_ARGUMENT', () => numbers.unsealText(text))
  refused('INVALID_ARGUMENT', () => numbers.unseal8Text('6WFE337S3ST0HT'))
  for (const [keys, sealWith] of [[null, 1], [{}, 1], [{ 1: SECRET }, 2], [{ 1: SECRET }, 0], [{ 1: SECRET }, 1.5], [{ 0: SECRET }, 0], [{ x: SECRET }, 1], [{ 1: 'key' }, 1], [{ 1: SECRET.subarray(1) }, 1]]) {
    refused('INVALID_ARGUMENT', () => OrderNumbers.fromKeys(keys, sealWith))
  }
  for (const name of [5, '\u001f', 'x'.repeat(129)]) refused('INVALID_ARGUMENT', () => OrderNumbers.fromKeys({ 1: SECRET }, 1, name))
  for (const version of [0, 2, 256, 1.5, '1', null]) refused('INVALID_ARGUMENT', () => numbers.withVersion(version))
  refused('INVALID_ARGUMENT', () => new OrderNumbers())
})

test('a router reads the gene without a key', () => {
  const router = Router.fromText('version = 7\n[[range]]\nupper = 65535\nshard = "s1"\n')
  for (const orderNo of [SEALED, new Uint8Array(SEALED), numbers.seal8(ID), numbers.sealText(ID), numbers.seal8Text(ID)]) assert.equal(router.routeOrderNo(orderNo).gene, 56443)
  for (const orderNo of [null, undefined, '', -1n, 2n ** 63n, Buffer.alloc(16), 1.5]) refused('INVALID_ARGUMENT', () => router.routeOrderNo(orderNo))
})

test('keys are not shown', () => {
  assert.ok(!/00, 01|0001/.test(inspect(numbers, { showHidden: true, depth: 9 })), inspect(numbers))
})
