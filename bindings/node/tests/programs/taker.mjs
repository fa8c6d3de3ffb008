// Takes until it is killed: CONFIG SPEC LOG WAY. An id is written before the next is taken.
import { openSync, writeSync } from 'node:fs'
import { open } from 'keymill'

const [config, spec, path, way] = process.argv.slice(2)
const log = openSync(path, 'a')
const source = open(config).source(spec)
const mine = way === '2' ? source.handle() : source
for (let turn = 0; ; turn++) {
  const ids = way === '1' && turn % 3 === 0 ? await source.takeAsync(20) : turn % 5 === 0 ? mine.take(7) : [mine.next()]
  writeSync(log, ids.map((id) => `${id}\n`).join(''))
}
