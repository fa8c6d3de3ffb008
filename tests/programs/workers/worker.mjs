// A process that takes for ever: CONFIG SPEC LOG. One line an id, each written before the next is taken.
import { openSync, writeSync } from 'node:fs'
import { open } from 'keymill'

const [config, spec, path] = process.argv.slice(2)
const log = openSync(path, 'a')
const source = open(config).source(spec)
const serial = spec.startsWith('serial:')
const business = spec.startsWith('business:')
const never = new Int32Array(new SharedArrayBuffer(4))
for (let turn = 0; ; turn++) {
  const many = turn % 3 === 0 && !serial
  const ids = business
    ? many ? source.take(turn % 30, 20) : [source.next(`buyer-${turn % 9}`)]
    : many ? source.take(20) : [source.next()]
  writeSync(log, ids.map(id => `${id}\n`).join(''))
  // Thousands of turns a second; more would only be counted.
  Atomics.wait(never, 0, 0, 0.1)
}
