// A runtime that refuses external buffers, as Electron does: DIST CONFIG.
import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { join } from 'node:path'

const [dist, config] = process.argv.slice(2)
const require = createRequire(import.meta.url)
const { native } = require(join(dist, 'native.js'))
const { lazy, open, use } = require(join(dist, 'index.js'))

{
  const { shareWord } = native
  native.shareWord = () => null
  const declared = lazy('segment:declared')
  for (const mill of [open('memory:'), open('memory:')]) {
    use(mill)
    assert.equal(declared(), 1n)
    mill.close()
    assert.throws(declared, { code: 'CLOSED', message: /the shared mill was closed/ })
  }
  use(null)
  native.shareWord = shareWord
}

for (const refused of [['contextsWord', 'sourceWord'], ['contextsWord'], ['sourceWord']]) {
  const kept = { ...native }
  for (const name of refused) native[name] = () => null
  const mill = open(`${config}-${refused}`)
  const sources = [mill.segment('a'), mill.segment('b', { order: 'thread' }), mill.segment('c').handle()]
  for (const source of sources) {
    let last = 0n
    for (let i = 0; i < 5000; i++) {
      const id = source.next()
      assert.ok(id > last)
      last = source.take(2)[1]
    }
  }
  const no = mill.serial('t', 'c', { date: '', number: '000000000' })
  const texts = [no.next(), ...no.take(3), await no.nextAsync(), no.handle().next()]
  assert.deepEqual([...texts].sort(), texts)
  assert.equal(new Set(texts).size, texts.length)
  mill.close()
  assert.throws(() => sources[0].next(), { code: 'CLOSED' })
  Object.assign(native, kept)
}
