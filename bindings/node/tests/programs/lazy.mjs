// What `lazy.test.mjs` runs, as a process of its own or as a worker, by the name of its task.
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads'
import { lazy, open, shared, use } from 'keymill'

const orders = lazy('segment:orders', { deadline: '60s' })
const plain = lazy('segment:orders')

/** An id, or what was thrown. */
function told(source) {
  try {
    return source()
  } catch (error) {
    return `${error.code} ${error.message}`
  }
}

const tasks = {
  async crowd() {
    const workers = Array.from({ length: 16 }, () => new Worker(new URL(import.meta.url), { workerData: { task: 'take' } }))
    const ids = orders.take(100)
    for (const taken of await Promise.all(workers.map((worker) => new Promise((end, fail) => worker.on('message', end).on('error', fail))))) ids.push(...taken)
    console.log(`${new Set(ids).size} of ${ids.length}`)
  },
  take() {
    parentPort.postMessage(Array.from({ length: 100 }, orders))
  },
  follow() {
    parentPort.on('message', () => parentPort.postMessage(told(orders)))
  },
  share() {
    use(open('memory:'))
    tasks.follow()
  },
  default() {
    const ids = [plain()]
    const mill = open('memory:')
    use(mill)
    ids.push(plain())
    use(null)
    ids.push(plain())
    shared().close()
    console.log(told(plain).slice('CLOSED '.length))
    use(null)
    console.log([...ids, plain()].join(' '))
  },
  first() {
    console.log(told(plain))
  },
}
await tasks[isMainThread ? process.argv[2] : workerData.task]()
