// One of the two threads of `bench.mjs`.
import { createRequire } from 'node:module'
import { parentPort, workerData } from 'node:worker_threads'
import { open } from '../dist/index.js'

const { kind, shared, plain } = workerData
const mill = open('memory:bench')
const source = mill.segment(kind === 'order=thread' ? 'thread' : 'process', { order: kind === 'order=thread' ? 'thread' : 'process' })
const call = createRequire(import.meta.url)(plain).plain
const kept = new Array(1024)
const array = new BigUint64Array(1000)
const loops = {
  'plain napi call': (count) => {
    for (let i = 0; i < count; i++) kept[i & 1023] = call()
  },
  'order=process, `fill(1000)`': (count) => {
    for (let i = 0; i < count; i += 1000) source.fill(array)
  },
}
const next = (count) => {
  for (let i = 0; i < count; i++) kept[i & 1023] = source.next()
}
const loop = loops[kind] ?? next
loop(200_000)
// Both begin together.
Atomics.add(shared, 0, 1)
while (Atomics.load(shared, 0) < 2);
const begin = performance.timeOrigin + performance.now()
const ids = 3_000_000
loop(ids)
const end = performance.timeOrigin + performance.now()
// Neither leaves before both have finished: the other would be alone.
Atomics.add(shared, 1, 1)
while (Atomics.load(shared, 1) < 2);
parentPort.postMessage({ begin, end, ids })
