// Takes ids and ends without a close: CONFIG, how it ends, and whether a worker took them.
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads'
import { open } from 'keymill'

const [config, end, where] = isMainThread ? process.argv.slice(2) : workerData
const ends = {
  returns() {},
  exits: () => process.exit(0),
  throws() {
    throw new Error('it is thrown on purpose')
  },
  rejects: () => Promise.reject(new Error('it is rejected on purpose')),
}

if (isMainThread && where !== undefined) {
  const worker = new Worker(new URL(import.meta.url), { workerData: [config, end, where] })
  // The mill of the worker is open when the process ends.
  if (where === 'beside') worker.on('message', () => ends[end]())
  else worker.on('error', () => {})
} else {
  const source = open(config).segment('orders', { deadline: '60s' })
  for (let i = 0; i < 300; i++) source.next()
  if (where === 'beside') parentPort.on('message', () => {}).postMessage('taken')
  else await ends[end]()
}
