"""Buyer → id → shard → found again: orders on two databases, found by their id alone.

    python sales.py MILL [COUNT]       python sales.py sqlite:shop.db 5
"""

import sys

import keymill

TABLE = """
version = 1
[[range]]
upper = 32767
shard = "north"
[[range]]
upper = 65535
shard = "south"
"""
config, count, *_ = [*sys.argv[1:], "5"]
router = keymill.Router.from_text(TABLE)  # mill.router("orders") follows a table in the store
shards = {"north": {}, "south": {}}

with keymill.open(config) as mill:
    sales = mill.business("sale")
    for number in range(1, int(count) + 1):
        buyer = f"buyer-{number}"
        id = sales.next(buyer)
        shards[router.route(id).shard][id] = buyer
        # The id alone leads to the row, and the buyer alone to its shard.
        found = router.route(id)
        assert shards[found.shard][id] == buyer and router.route_key(buyer).shard == found.shard
        print(f"{buyer}: sale {id}, gene {found.gene}, on {found.shard}")
