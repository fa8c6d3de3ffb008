import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { test } from 'node:test'
import { KeymillError, Mill, NumberSource, Serial, Source, open, openAsync } from 'keymill'
import { blackHole, fresh, scratch } from './support.mjs'

const require = createRequire(import.meta.url)
const home = dirname(require.resolve('keymill/package.json'))

/** Refused with this code, and nothing of Rust or of a password shows. */
function refused(code, message, call) {
  assert.throws(call, (e) => {
    assert.ok(e instanceof KeymillError, String(e))
    assert.equal(e.code, code, e.message)
    assert.match(e.message, message)
    assert.doesNotMatch(e.message + e.stack, /panicked|secret|unwrap/)
    return true
  })
}

test('wrong counts are refused before a number is spent', async () => {
  const mill = open('memory:')
  for (const source of [mill.segment('counts'), mill.snowflake('counts', { worker: 1 }), mill.serial('t', 'c')]) {
    for (const count of [-1, 1.5, NaN, Infinity, -Infinity, 5n, '5', null, undefined, {}, [], true, Symbol('x')]) {
      refused('INVALID_ARGUMENT', /count must be a whole number/, () => source.take(count))
      await assert.rejects(source.takeAsync(count), { code: 'INVALID_ARGUMENT' })
    }
    for (const count of [2 ** 22 + 1, 2 ** 31, 2 ** 53, Number.MAX_VALUE]) {
      refused('INVALID_ARGUMENT', /too many for one list/, () => source.take(count))
      await assert.rejects(source.takeAsync(count), { code: 'INVALID_ARGUMENT' })
    }
    assert.deepEqual(source.take(0), [])
    assert.deepEqual(await source.takeAsync(0), [])
  }
  assert.equal(mill.segment('counts').next(), 1n)
  mill.close()
})

test('a message names what was given in plain words', () => {
  refused('INVALID_ARGUMENT', /not an object$/, () => open({}))
  const mill = open('memory:')
  refused('INVALID_ARGUMENT', /must be 'bigint' or 'number', not 'numbr'$/, () => mill.segment('s', { as: 'numbr' }))
  mill.close()
})

test('wrong arrays are refused and left as they were', () => {
  const mill = open('memory:')
  const ids = mill.segment('arrays')
  for (const array of [[], new Array(3), new Uint32Array(3), new Float64Array(2), new ArrayBuffer(8), Buffer.alloc(8), {}, null, undefined, 5, 'x', new DataView(new ArrayBuffer(8))]) {
    refused('INVALID_ARGUMENT', /BigUint64Array/, () => ids.fill(array))
  }
  assert.deepEqual(ids.fill(new BigUint64Array(0)), new BigUint64Array(0))
  const shared = new BigInt64Array(new SharedArrayBuffer(24))
  assert.deepEqual([...ids.fill(shared)], [1n, 2n, 3n])
  const part = new BigUint64Array(new ArrayBuffer(64), 16, 2)
  ids.fill(part)
  assert.deepEqual([...new BigUint64Array(part.buffer)], [0n, 0n, 4n, 5n, 0n, 0n, 0n, 0n])
  const detached = new BigUint64Array(4)
  structuredClone(detached.buffer, { transfer: [detached.buffer] })
  assert.equal(ids.fill(detached).length, 0)
  mill.close()
})

test('specs, names and options with typos say what is valid', () => {
  const mill = open('memory:')
  refused('INVALID_CONFIG', /valid options: .*min_step/, () => mill.segment('x', { stpe: 1 }))
  refused('INVALID_CONFIG', /segment/, () => mill.source('sgement:x'))
  refused('INVALID_CONFIG', /./, () => mill.source(''))
  refused('INVALID_CONFIG', /./, () => mill.segment(''))
  refused('INVALID_CONFIG', /./, () => mill.segment('a\0b'))
  refused('INVALID_CONFIG', /./, () => mill.segment('x', { step: -5 }))
  refused('INVALID_CONFIG', /./, () => mill.segment('x', { 'a&step': 5 }))
  refused('INVALID_CONFIG', /./, () => mill.serial('t', 'c', { date: 'qqq' }))
  for (const value of [null, 5, undefined, {}, Symbol('x'), 5n]) {
    refused('INVALID_ARGUMENT', /must be a string/, () => mill.segment(value))
    refused('INVALID_ARGUMENT', /must be a string/, () => mill.source(value))
    refused('INVALID_ARGUMENT', /must be a string/, () => mill.serial('t', value))
  }
  for (const value of [null, [], {}, NaN, Infinity, true, () => 1, Symbol('x')]) {
    refused('INVALID_ARGUMENT', /the option step/, () => mill.segment('x', { step: value }))
  }
  for (const options of [null, 5, 'step=5', []]) refused('INVALID_ARGUMENT', /options must be/, () => mill.segment('x', options))
  refused('INVALID_ARGUMENT', /as must be/, () => mill.segment('x', { as: 'text' }))
  refused('INVALID_ARGUMENT', /nextText\(\) and takeText\(n\); as 'string' is for lazy/, () => mill.segment('x', { as: 'string' }))
  mill.close()
})

test('configurations that are none are refused without their password', async () => {
  for (const config of ['nope:x', 'postgres://a:secret@h/d?sslmode=require', 'secret', 'mysql://a:secret@', 'file:/nowhere.toml', 'memory:?clok=manual', '\0']) {
    assert.throws(() => open(config), (e) => e instanceof KeymillError && e.code !== 'INTERNAL' && !/secret/.test(e.message + e.stack), config)
    await assert.rejects(openAsync(config), (e) => e instanceof KeymillError && !/secret/.test(e.message + e.stack), config)
  }
  for (const config of [5, null, {}, [], 5n, true]) {
    refused('INVALID_ARGUMENT', /configuration must be a string/, () => open(config))
    await assert.rejects(openAsync(config), { code: 'INVALID_ARGUMENT' })
  }
})

test('ids that this source cannot have made are refused', () => {
  const mill = open('memory:')
  const ids = mill.segment('parsed')
  assert.deepEqual(ids.parse(5n), { number: 5n })
  assert.deepEqual(ids.parse('5'), { number: 5n })
  for (const id of [0n, -1n, 2n ** 63n, 2n ** 200n, '', 'x', '1.5', -5, 0]) refused('INVALID_ARGUMENT', /./, () => ids.parse(id))
  for (const id of [1.5, NaN, 2 ** 60, null, undefined, {}, Symbol('x')]) refused('INVALID_ARGUMENT', /parse takes/, () => ids.parse(id))
  refused('INVALID_ARGUMENT', /date=/, () => mill.serial('t', 'c').parse('20269999'))
  mill.close()
})

test('after close every verb says CLOSED', async () => {
  const mill = open('memory:')
  const sources = [mill.segment('a'), mill.snowflake('b', { worker: 1 }), mill.serial('t', 'c'), mill.segment('h').handle()]
  for (const source of sources) source.next()
  mill.close()
  for (const source of sources) {
    const verbs = [() => source.next(), () => source.tryNext(), () => source.take(2), () => source.take(0), () => source.handle(), () => source[Symbol.iterator]().next(), () => source.parse(1n)]
    if (source.fill) verbs.push(() => source.fill(new BigUint64Array(1)))
    for (const verb of verbs) refused('CLOSED', /closed/, verb)
    await assert.rejects(source.nextAsync(), { code: 'CLOSED' })
    await assert.rejects(source.takeAsync(1), { code: 'CLOSED' })
  }
  for (const verb of [() => mill.segment('a'), () => mill.advanceClock(5)]) refused('CLOSED', /closed/, verb)
})

test('figures are told after close, as in every language', async () => {
  for (const close of [(mill) => mill.close(), (mill) => mill.closeAsync()]) {
    const mill = open('memory:')
    const ids = mill.segment('told')
    ids.take(7)
    await close(mill)
    assert.equal(ids.stats().issued, 7)
    assert.match(mill.metrics(), /keymill_issued_total\{source="segment:told"\} 7/)
  }
})

test('mills and sources are not made by new', () => {
  const mill = open('memory:')
  const life = Object.create(null)
  for (const wrong of [[], [5], [{}], [mill], [null], [life, life]]) {
    refused('INVALID_ARGUMENT', /opened by open\(/, () => new Mill(...wrong))
    for (const kind of [Source, NumberSource, Serial]) refused('INVALID_ARGUMENT', /comes from a mill/, () => new kind(...wrong))
  }
  mill.close()
})

test('half a surrogate pair is no character', async () => {
  refused('INVALID_CONFIG', /surrogate/, () => open('memory:\ud800'))
  await assert.rejects(openAsync('memory:\udc00x'), { code: 'INVALID_CONFIG' })
  const mill = open('memory:')
  for (const verb of [
    () => mill.source('segment:\ud800'),
    () => mill.segment('a\udfff'),
    () => mill.serial('t', '\ude00\ud83d'),
    () => mill.serial('t', 'c', { date: "'\ud83d'yyyy" }),
    () => mill.segment('a', { '\ud800': 1 }),
    () => mill.init('segment:\ud800'),
  ]) refused('INVALID_CONFIG', /surrogate/, verb)
  assert.equal(mill.segment('\ud83e\udd80').next(), 1n)
  mill.close()
})

test('one close leaves another opening of the same mill open', () => {
  const config = fresh()
  const [one, two] = [open(config), open(config)]
  const [a, b] = [one.segment('s'), two.segment('s')]
  assert.equal(a.next(), 1n)
  one.close()
  refused('CLOSED', /closed/, () => a.next())
  assert.equal(b.next(), 2n)
  two.close()
  refused('CLOSED', /closed/, () => b.next())
})

test('a mill that is opened while it closes waits for that, and keeps its worker', async () => {
  // The close gives the snowflake's time mark back, slowly. A mill that read the mark before that would find it moved.
  const config = `${fresh()}?script=ack:2,silent:100ms,ack,silent:300ms,ack:100`
  const mill = open(config)
  const seen = [mill.snowflake('tx', { worker: 5 }).next()]
  const closing = mill.closeAsync()
  // On its way to the store.
  for (const end = performance.now() + 30; performance.now() < end; );
  const again = open(config)
  const tx = again.snowflake('tx', { worker: 5 })
  // Until the mark is due again.
  for (const end = performance.now() + 1500; performance.now() < end; ) {
    seen.push(await tx.nextAsync())
    await new Promise(setImmediate)
  }
  assert.equal(new Set(seen).size, seen.length)
  again.close()
  await closing
})

test('a store that is not there is an error within the deadline, without its password', async () => {
  const hole = await blackHole()
  for (const place of ['127.0.0.1:1', `127.0.0.1:${hole.port}`]) {
    const mill = open(`mysql://app:secret@${place}/ids?connect_timeout=1s&timeout=1s`)
    const ids = mill.segment('gone', { deadline: '500ms' })
    const begin = performance.now()
    await assert.rejects(ids.nextAsync(), (e) => /^(DEADLINE|STORE_UNAVAILABLE)$/.test(e.code) && !/secret/.test(e.message + e.stack))
    refused('DEADLINE|STORE_UNAVAILABLE', /./, () => {
      try {
        ids.next()
      } catch (e) {
        if (/^(DEADLINE|STORE_UNAVAILABLE)$/.test(e.code)) e = new KeymillError('DEADLINE|STORE_UNAVAILABLE', e.message)
        throw e
      }
    })
    await assert.rejects(ids.takeAsync(5), KeymillError)
    const kept = new BigUint64Array([7n, 7n])
    assert.throws(() => ids.fill(kept), KeymillError)
    assert.deepEqual(kept, new BigUint64Array([7n, 7n]))
    assert.ok(performance.now() - begin < 60_000)
    assert.doesNotMatch(mill.metrics() + JSON.stringify(ids.settings), /secret/)
    await mill.closeAsync()
  }
  hole.end()
})

test('a missing TOML source or a folder that is not there is a refusal', () => {
  const mill = open(`sqlite:${scratch()}/no/such/folder/ids.db`)
  assert.throws(() => mill.segment('x', { deadline: '300ms' }).next(), KeymillError)
  mill.close()
})

test('the clock of a real mill stays where it is', () => {
  const mill = open('memory:')
  refused('INVALID_ARGUMENT', /clock=manual/, () => mill.advanceClock(1))
  for (const ms of [NaN, 1.5, '1', 1n, null]) refused('INVALID_ARGUMENT', /whole number|forward/, () => mill.setClock(ms))
  refused('INVALID_ARGUMENT', /forward/, () => mill.advanceClock(-1))
  mill.close()
})

test('the native part refuses values of another kind', () => {
  const { native } = require(join(home, 'dist/native.js'))
  const mill = native.openMill('memory:')
  const source = native.source(mill, 'segment:x')
  for (const wrong of [mill, {}, null, undefined, 5, 'x', () => 1]) {
    for (const verb of ['nextId', 'lease', 'identity', 'stats', 'fillNow', 'directNext', 'contextsWord']) {
      assert.throws(() => native[verb](wrong, 0, false, 0, new BigUint64Array(6)), verb)
    }
  }
  assert.throws(() => native.lease(source, 0, false, 0, new Uint8Array(6)))
  assert.equal(native.lease(source, 1, false, -1, new BigUint64Array(0)) >= 0, true)
})
