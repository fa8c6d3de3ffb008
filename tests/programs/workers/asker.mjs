// A process that asks for ever and writes down each answer, an id or the code of an error: CONFIG SPEC LOG.
import { openSync, writeSync } from 'node:fs'
import { open } from 'keymill'

const [config, spec, path] = process.argv.slice(2)
const log = openSync(path, 'a')
const source = open(config).source(spec)
const never = new Int32Array(new SharedArrayBuffer(4))
for (;;) {
  let answer
  try {
    answer = source.next()
  } catch (error) {
    answer = error.code
  }
  writeSync(log, `${answer}\n`)
  Atomics.wait(never, 0, 0, 2)
}
