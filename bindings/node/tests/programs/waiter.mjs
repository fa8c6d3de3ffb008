// Waits for an id that does not come: CONFIG VERB.
import { open } from 'keymill'

const [config, verb] = process.argv.slice(2)
const mill = open(config)
const ids = mill.segment('s', { deadline: '60s' })
const orders = mill.business('b', { counters: 65536, deadline: '60s' })
console.log('waiting')
if (verb === 'next') ids.next()
else if (verb === 'keys') await Promise.all(Array.from({ length: 1000 }, (_, key) => orders.nextAsync(key)))
else await ids[verb](3)
