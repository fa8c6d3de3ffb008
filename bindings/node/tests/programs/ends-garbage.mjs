// Takes ids by what nothing uses afterwards, collects garbage and ends: CONFIG, and `handle` or `source`.
import { setTimeout } from 'node:timers/promises'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { open } from 'keymill'

setFlagsFromString('--expose-gc')
const collect = runInNewContext('gc')
const [config, by] = process.argv.slice(2)

function take() {
  const source = open(config).segment('orders', { deadline: '60s' })
  const ids = by === 'handle' ? source.handle() : source
  for (let i = 0; i < 300; i++) ids.next()
}

take()
for (let i = 0; i < 3; i++) {
  await setTimeout(20)
  collect()
}
