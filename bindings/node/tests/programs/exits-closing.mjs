// Exits while a close of its mill waits for a store, and while an opening of the same name waits for that close. CONFIG
import { open, openAsync } from 'keymill'

const mill = open(process.argv[2])
mill.segment('orders').tryNext()
setTimeout(() => {
  mill.closeAsync()
  openAsync(process.argv[2])
  setTimeout(() => process.exit(3), 200)
}, 200)
