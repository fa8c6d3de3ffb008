// What is reserved and not used: the bound that docs/configuration.md states, and what processes that end lose.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test } from 'node:test'
import { open } from 'keymill'
import { blackHole, run, scratch } from './support.mjs'

const MIN_STEP = 1_000

for (const [rate, eachMs, ids] of [[1, 1_000, 1], [10, 100, 1], [1_000, 10, 10]]) {
  for (const byHandle of [false, true]) {
    test(`what is reserved and not used stays under the bound at ${rate}/s${byHandle ? ' in a handle' : ''}`, () => {
      const mill = open('memory:?clock=manual')
      const source = mill.segment('orders', { deadline: '60s' })
      const taker = byHandle ? source.handle() : source
      let used = 0
      for (let ms = 0; ms < 70_000; ms += eachMs) {
        mill.advanceClock(eachMs)
        for (let i = 0; i < ids; i++) taker.next()
        used += ids
        const ahead = source.stats().reserved - used
        assert.ok(ahead < (rate * 30 * 6) / 5 + 2 * MIN_STEP, `${ahead} ahead after ${used}`)
      }
      mill.close()
    })
  }
}

const first = (config) => {
  const mill = open(config)
  const id = mill.segment('orders', { deadline: '60s' }).next()
  mill.close()
  return Number(id)
}

test('mills that take 300 ids each and close one after the other lose none', () => {
  const config = `sqlite:${join(scratch(), 'ids.db')}`
  for (let process = 0; process < 20; process++) {
    const mill = open(config)
    const source = mill.segment('orders', { deadline: '60s' })
    for (let i = 0; i < 300; i++) source.next()
    mill.close()
  }
  assert.equal(first(config), 6_001)
})

for (const [end, answer] of Object.entries({ returns: 0, exits: 0, throws: 1, rejects: 1 })) {
  test(`a process that ${end} with an open mill gives back what its sources have`, async () => {
    const config = `sqlite:${join(scratch(), 'ids.db')}`
    for (let process = 0; process < 3; process++) {
      const { code, err } = await run('ends-open.mjs', [config, end]).done
      assert.equal(code, answer, err)
    }
    assert.equal(first(config), 901)
    const inWorker = await run('ends-open.mjs', [config, end, 'in a worker']).done
    assert.equal(inWorker.code, 0, inWorker.err)
    assert.equal(first(config), 1_202)
  })
}

for (const by of ['source', 'handle']) {
  test(`what is left of a block whose ${by} is garbage goes back`, async () => {
    const config = `sqlite:${join(scratch(), 'ids.db')}`
    for (let process = 0; process < 3; process++) {
      const { code, err } = await run('ends-garbage.mjs', [config, by]).done
      assert.equal(code, 0, err)
    }
    assert.equal(first(config), 901)
  })
}

test('a process that exits beside a worker loses no more than the rest of its block', async () => {
  const config = `sqlite:${join(scratch(), 'ids.db')}`
  const { code, err } = await run('ends-open.mjs', [config, 'exits', 'beside']).done
  assert.equal(code, 0, err)
  const id = first(config)
  assert.ok(id > 300 && id < 2 * 300, `${id}`)
})

async function exitsSoon(program) {
  const hole = await blackHole()
  const began = performance.now()
  const { code, err } = await run(program, [`mysql://app@127.0.0.1:${hole.port}/ids?timeout=60s`]).done
  const took = performance.now() - began
  hole.end()
  assert.equal(code, 3, err)
  assert.ok(took < 8_000, `${took} ms`)
}

test('an exit waits 2 s for a silent store', () => exitsSoon('exits-waiting.mjs'))

test('an exit waits 2 s for a silent store that a closeAsync and an openAsync wait for', () => exitsSoon('exits-closing.mjs'))
