// 25 000 sources and handles that the program drops (in `ci/test --all` 100 000), six times: what lies outside of V8's heap must not grow with the storms.
// (V8 keeps room for a next storm; that what it holds is little is checked apart.)
import { open } from 'keymill'

const mill = open('memory:')
const keep = mill.segment('kept')
const [SOURCES, MOST_MB] = process.env.KEYMILL_ALL ? [100_000, 45] : [25_000, 20]
const outside = []
for (let storm = 0; storm < 6; storm++) {
  for (let i = 0; i < SOURCES; i++) {
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
  const { rss, heapTotal } = process.memoryUsage()
  outside.push(Math.round((rss - heapTotal) / 1e6))
}
const held = process.memoryUsage().heapUsed / 1e6
console.log(`outside of the heap after each storm: ${outside.join(', ')} MB; in it ${held.toFixed(1)} MB`)
// Sources that leaked 250 bytes each would add 100 MB in four storms, or 25 MB where there are fewer.
if (outside[5] - outside[1] > MOST_MB || held > 15) process.exit(1)
mill.close()
