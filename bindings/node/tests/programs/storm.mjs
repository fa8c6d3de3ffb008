// 100 000 sources and handles that nobody keeps, three times: the second and third storm must find the room of the first.
import { open } from 'keymill'

const mill = open('memory:')
const keep = mill.segment('kept')
const rss = []
for (let storm = 0; storm < 3; storm++) {
  for (let i = 0; i < 100_000; i++) {
    mill.segment('kept').next()
    if (i % 2 === 0) keep.handle().tryNext()
    if (i % 10 === 0) mill.snowflake('tx', { worker: 1 }).handle().next()
    // Finalizers of values that were collected run between turns.
    if (i % 5000 === 0) await new Promise(setImmediate)
  }
  for (let i = 0; i < 5; i++) {
    globalThis.gc()
    await new Promise(setImmediate)
  }
  rss.push(Math.round(process.memoryUsage().rss / 1e6))
}
console.log(`resident after each storm: ${rss.join(', ')} MB`)
if (rss[2] - rss[0] > 25) process.exit(1)
mill.close()
