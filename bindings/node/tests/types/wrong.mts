import { KeymillError, lazy, open, use } from 'keymill'

const mill = open('memory:')
const orders = mill.segment('orders')
const id: number = orders.next() // wrong
orders.take('5') // wrong
orders.fill(new Uint32Array(5)) // wrong
mill.segment('x', { step: true }) // wrong
const text: string = mill.source('segment:x').next() // wrong
new KeymillError('NO_SUCH_CODE', 'x') // wrong
const big: bigint = mill.snowflake('web', { as: 'number' }).next() // wrong
mill.serial('table') // wrong
open(5) // wrong
const one: string = lazy('segment:orders')() // wrong
lazy('business:order')() // wrong
use('memory:') // wrong
void [id, text, big, one]
