"""Orders of a shop whose rows lie on several databases: placed, changed and read again until a file says stop.

    python shop.py MILL KEYS SHARDS LOG SEED

SHARDS is `s1=HOST:PORT/DATABASE,…`. LOG gets one line for each write that both shards have: `MS VERB ID ORDER_NO BUYER VERSION SHARD`,
and a line `WRONG …` for an order that is not read as it was written. The program ends when the file LOG.stop is there.
"""

import bisect
import itertools
import os
import random
import sys
import time
from pathlib import Path

import keymill
import pymysql

sys.path.insert(0, str(Path(__file__).parent.parent))
from pool import Pool

BUYERS = 2000
# No value is left to the database: two of them would say different times.
WRITE = """INSERT INTO t_order (order_id, order_no, order_no_kv, buyer_id, version, created_at)
VALUES (%s, %s, %s, %s, %s, FROM_UNIXTIME(%s / 1000))
ON DUPLICATE KEY UPDATE version = VALUES(version)"""
READ = "SELECT version FROM t_order WHERE order_id = %s"

config, keys, shards, log_file, seed = sys.argv[1:]
chance = random.Random(int(seed))
weights = list(itertools.accumulate(1 / (rank + 1) for rank in range(BUYERS)))


def database(place):
    """The connections to a shard."""
    host, rest = place.split(":")
    port, name = rest.split("/")
    return Pool(lambda: pymysql.connect(
        host=host, port=int(port), user="keymill", password="secret", database=name,
        connect_timeout=2, read_timeout=2, write_timeout=2,
        # Otherwise writers of new ids wait for each other's gaps.
        init_command="SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"))


places = {name: database(place) for name, place in (shard.split("=") for shard in shards.split(","))}


def write(orders, router, id, row):
    """Writes the order, until it is acknowledged; answers with the shard that decides."""
    def work(connection):
        with connection.cursor() as cursor:
            cursor.execute(WRITE, row)

    while True:
        try:
            orders.run(id, work)
            return router.route(id).shard
        except (keymill.KeymillError, pymysql.MySQLError):
            # The same row again is no other one.
            time.sleep(0.05)


def read(orders, id):
    with orders.read(id) as connection, connection.cursor() as cursor:
        cursor.execute(READ, (id,))
        return cursor.fetchone()


def shop(mill, log):
    router, numbers = mill.router("orders"), keymill.OrderNumbers.open(keys, "acme", "t_order")
    ids, mine = mill.business("order", counters=1024, deadline="60s"), []
    orders = keymill.Shards(router, places, tables={"t_order": "order_id"})
    while not os.path.exists(log_file + ".stop"):
        now = round(time.time() * 1000)
        if mine and chance.random() < 0.2:
            order = chance.choice(mine)
            order[3] += 1
            verb = "changed"
        else:
            buyer = bisect.bisect(weights, chance.random() * weights[-1]) + 1
            id = ids.next(buyer)
            order = [id, numbers.seal(id), buyer, 1, now]
            verb = "placed"
        id, number, buyer, version, created = order
        shard = write(orders, router, id, (id, number, numbers.version, buyer, version, created))
        print(round(time.time() * 1000), verb, id, number.hex(), buyer, version, shard, file=log, flush=True)
        if verb == "placed":
            mine.append(order)
        id, _, _, version, _ = chance.choice(mine)
        try:
            found = read(orders, id)
        except (keymill.KeymillError, pymysql.MySQLError):
            continue
        if found != (version,):
            print("WRONG", id, f"version {version}, read {found}", file=log, flush=True)
        time.sleep(0.005)


with keymill.open(config) as mill, open(log_file, "w") as log:
    shop(mill, log)
