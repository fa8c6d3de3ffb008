// Exits while its mill waits for a store. CONFIG
import { open } from 'keymill'

open(process.argv[2]).segment('orders').tryNext()
setTimeout(() => process.exit(3), 200)
