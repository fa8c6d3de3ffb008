// Orders with ids of a segment and invoices with serial numbers of the day, on the database of your choice.
//
//     node orders.mjs MILL [COUNT] [PAUSE_MS]        node orders.mjs sqlite:shop.db 5
//
// Run it twice at once: no order comes twice. Stop the database under it: it goes on from memory.
import { setTimeout as pause } from 'node:timers/promises'
import { open, KeymillError } from 'keymill'

const [config, count = '5', pauseMs = '0'] = process.argv.slice(2)
const errors = {}

const mill = open(config)
const orders = mill.segment('orders')
const invoices = mill.serial('invoice', 'number', { date: 'yyyyMMdd', number: '00000000' })
for (let i = 0; i < Number(count); i++) {
  try {
    console.log(`order ${await orders.nextAsync()}, invoice ${await invoices.nextAsync()}`)
  } catch (error) {
    if (!(error instanceof KeymillError)) throw error
    errors[error.code] = (errors[error.code] ?? 0) + 1
  }
  await pause(Number(pauseMs))
}
mill.close()

console.error(`errors: ${Object.keys(errors).length ? JSON.stringify(errors) : 'none'}`)
