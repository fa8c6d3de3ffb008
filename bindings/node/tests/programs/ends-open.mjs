// Takes ids and ends without a close.
import { open } from 'keymill'

const source = open(process.argv[2]).segment('orders', { deadline: '60s' })
for (let i = 0; i < 300; i++) source.next()
