// Waits for an id that does not come: CONFIG VERB.
import { open } from 'keymill'

const [config, verb] = process.argv.slice(2)
const ids = open(config).segment('s', { deadline: '60s' })
console.log('waiting')
if (verb === 'next') ids.next()
else await ids[verb](3)
