// Follows a table and ends without a close: CONFIG, how it ends.
import { open } from 'keymill'

const [config, end] = process.argv.slice(2)
open(config).router('orders').route(1n)
const ends = {
  returns() {},
  exits: () => process.exit(0),
  throws() {
    throw new Error('it is thrown on purpose')
  },
  'is terminated'() {
    process.on('SIGTERM', () => process.exit(0))
    setTimeout(() => {}, 60_000)
    process.kill(process.pid, 'SIGTERM')
  },
}
ends[end]()
