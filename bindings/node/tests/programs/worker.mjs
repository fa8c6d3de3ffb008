// What a worker of `workers.test.mjs` does, by the name of its task.
import { parentPort, workerData } from 'node:worker_threads'
import { open } from 'keymill'
import { hammer } from './hammer.mjs'

const { task, config, name, options, count, flag, block } = workerData
const mill = open(config)

const tasks = {
  take() {
    parentPort.postMessage(mill.segment('shared').take(count))
    mill.close()
  },
  hammer() {
    parentPort.postMessage(hammer(mill, workerData.kind, workerData.latest, count))
    // Some leave by a close, some just end.
    if (Math.random() < 0.5) mill.close()
  },
  hold() {
    const source = mill.segment(name, options)
    source.next()
    parentPort.postMessage('here')
    parentPort.once('message', () => parentPort.postMessage(source.next()))
  },
  mix() {
    const source = mill.segment(name, options)
    const ids = new BigUint64Array(count)
    let at = 0
    while (at < count) {
      const most = count - at
      if (at % 5 === 0 && most > 50) {
        source.fill(ids.subarray(at, at + 50))
        at += 50
      } else ids[at++] = source.next()
    }
    parentPort.postMessage(ids)
  },
  spin() {
    mill.setClock(Date.UTC(2027, 0, 1))
    const source = mill.serial('t', 'spin', { number: '0'.repeat(18), zone: 'UTC', block, min_step: 4 * block })
    const before = source.next().slice(0, 8)
    let last = ''
    let text = source.next()
    while (Number(text.slice(8)) < 200) text = source.next()
    Atomics.store(flag, 0, 1)
    // Bounded, so that a word that is never seen fails.
    const end = performance.now() + 15_000
    for (let i = 0; text.startsWith(before) && (i % 4096 !== 0 || performance.now() < end); i++) {
      last = text
      text = source.next()
    }
    parentPort.postMessage({ before, after: text.slice(0, 8), last: Number(last.slice(8)) })
  },
  async wait() {
    const source = mill.segment('wait', { deadline: '60s' })
    parentPort.postMessage('waiting')
    if (workerData.how === 'nextAsync') await source.nextAsync()
    else if (workerData.how === 'keys') {
      const orders = mill.business('wait', { counters: 65536, deadline: '60s' })
      await Promise.all(Array.from({ length: 1000 }, (_, key) => orders.nextAsync(key)))
    } else if (workerData.how === 'fill') source.fill(new BigUint64Array(5))
    else source.next()
  },
  forever() {
    const source = mill.segment(name, options)
    source.next()
    parentPort.postMessage('here')
    for (;;) source.next()
  },
  until() {
    const source = mill.segment('until')
    const ids = []
    Atomics.add(flag, 0, 1)
    while (Atomics.load(flag, 1) === 0 && ids.length < 1_000_000) ids.push(source.next())
    parentPort.postMessage(BigUint64Array.from(ids))
  },
}
await tasks[task]()
