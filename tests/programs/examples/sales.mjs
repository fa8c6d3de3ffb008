// Buyer → id → shard → found again: orders on two databases, found by their id alone.
//
//     node sales.mjs MILL [COUNT]        node sales.mjs sqlite:shop.db 5
import assert from 'node:assert/strict'
import { open, Router } from 'keymill'

const TABLE = `
version = 1
[[range]]
upper = 32767
shard = "north"
[[range]]
upper = 65535
shard = "south"
`
const [config, count = '5'] = process.argv.slice(2)
const router = Router.fromText(TABLE) // mill.router('orders') follows a table in the store
const shards = { north: new Map(), south: new Map() }

const mill = open(config)
const sales = mill.business('sale')
for (let number = 1; number <= Number(count); number++) {
  const buyer = `buyer-${number}`
  const id = await sales.nextAsync(buyer)
  shards[router.route(id).shard].set(id, buyer)
  // The id alone leads to the row, and the buyer alone to its shard.
  const found = router.route(id)
  assert.equal(shards[found.shard].get(id), buyer)
  assert.equal(router.routeKey(buyer).shard, found.shard)
  console.log(`${buyer}: sale ${id}, gene ${found.gene}, on ${found.shard}`)
}
mill.close()
