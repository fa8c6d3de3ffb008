// Waits for ids of 65 536 counters at once, by two verbs: afterwards V8's heap holds nothing of them.
import { gene, open } from 'keymill'

const keys = new Map()
for (let key = 0; keys.size < 65_536; key++) keys.set(gene(key), key)
const mill = open('memory:')
const used = async () => {
  for (let i = 0; i < 5; i++) {
    globalThis.gc()
    await new Promise(setImmediate)
  }
  return process.memoryUsage().heapUsed / 1e6
}
/** How many calls waited. */
async function storm(orders) {
  const verbs = [(key) => orders.nextAsync(key), (key) => orders.takeAsync(key, 1)]
  let calls = []
  for (const [gene, key] of keys) calls.push(verbs[gene % 2](key))
  await Promise.all(calls)
  return orders.stats().waits
}
const options = { counters: 65_536, deadline: '60s' }
// What is compiled and cached once.
await storm(mill.business('first', options))
const orders = mill.business('order', options)
const before = await used()
const waits = await storm(orders)
const more = (await used()) - before
console.log(`${waits} calls waited; the heap grew by ${more.toFixed(1)} MB`)
// A promise that was kept for each counter would be 6 MB.
if (waits < 30_000 || more > 2) process.exit(1)
mill.close()
