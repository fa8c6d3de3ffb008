import { KeymillError, Mill, lazy, shared, use, NumberSource, OrderNumbers, Router, Serial, Shards, Source, open, openAsync, version } from 'keymill'
import type { Code, Parts, SourceOptions, SourceStats } from 'keymill'

const mill: Mill = open('memory:')
const other: Mill = await openAsync()
const options: SourceOptions = { step: 1000, deadline: '1s', start: 5n }
const orders: Source = mill.segment('orders', options)
const id: bigint = orders.next()
const later: bigint = await orders.nextAsync()
const now: bigint | null = orders.tryNext()
const many: bigint[] = orders.take(5)
const more: bigint[] = await orders.takeAsync(5)
const filled: BigUint64Array = orders.fill(new BigUint64Array(5))
const signed: BigInt64Array = orders.fill(new BigInt64Array(5))
const mine: Source = orders.handle()
const no: Serial = mill.serial('cust_info', 'custid', { date: 'yyyyMMdd', number: '000000', step: 500 })
const text: string = no.next()
const texts: string[] = no.take(3)
const named: Serial = mill.source('serial:t/c')
const plain: Source = mill.source('segment:orders?step=5')
const web: NumberSource = mill.snowflake('web', { layout: 'js53', as: 'number' })
const small: number = web.next()
const parts: Parts = orders.parse(id)
const stats: SourceStats = orders.stats()
const code: Code = new KeymillError('CLOSED', 'x').code
for (const each of orders) {
  const one: bigint = each
  void one
  break
}
for await (const each of no) {
  const one: string = each
  void one
  break
}
mill[Symbol.dispose]()
await other[Symbol.asyncDispose]()
const retry: number | undefined = new KeymillError('NOT_READY', 'x', 5).retryAfterMs
void [later, now, many, more, filled, signed, mine, text, texts, named, plain, small, parts, stats, code, retry, version]
const numbers: OrderNumbers = OrderNumbers.fromKeys({ 1: new Uint8Array(32) }, 1, 'acme', 'orders')
const sealed: Uint8Array = numbers.seal(5n)
const all: Uint8Array[] = numbers.sealAll([1n, 2n])
const opened: bigint[] = numbers.unsealAll(all)
const shard: string = Router.open('routes.toml').routeOrderNo(sealed).shard
void [opened, shard, numbers.withVersion(1).seal8(5).toString(), numbers.sealText(5n).length]
const declared: () => bigint = lazy('segment:orders', { step: 1000 })
const digits: string = lazy('segment:orders', { as: 'string' })()
const exact: number = lazy('snowflake:web', { layout: 'js53', as: 'number' }).next()
const serials: string[] = lazy('serial:t/c').take(2)
const soon: bigint = await lazy('segment:orders').nextAsync()
const sale: bigint = lazy('business:order').next('buyer-42')
for (const each of lazy('segment:orders')) {
  const one: bigint = each
  void one
  break
}
use(mill)
const common: Mill = shared()
use(null)
void [declared, digits, exact, serials, soon, sale, common]
const over = new Shards<{ query(sql: string): Promise<number[]> }>(Router.open('routes.toml'), { s1: {} }, { tables: { t_order: 'order_id' }, deadline: '15s' })
const counted: number[] = await over.write(5n, (client) => client.query('SELECT 1'))
const seen: string = await over.read(new Uint8Array(16), () => 'seen')
void [counted, seen]
