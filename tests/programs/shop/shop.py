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

import keymill
import pymysql

BUYERS = 2000
# No value is left to the database: two of them would say different times.
WRITE = """INSERT INTO t_order (order_id, order_no, order_no_kv, buyer_id, version, created_at)
VALUES (%s, %s, %s, %s, %s, FROM_UNIXTIME(%s / 1000))
ON DUPLICATE KEY UPDATE version = VALUES(version)"""
LOCK = "SELECT order_id, order_no, order_no_kv, buyer_id, version, created_at FROM t_order WHERE order_id = %s FOR UPDATE"
# What the other shard has, as the one that decides has it.
SAME = """INSERT INTO t_order (order_id, order_no, order_no_kv, buyer_id, version, created_at)
VALUES (%s, %s, %s, %s, %s, %s) ON DUPLICATE KEY UPDATE version = VALUES(version)"""
READ = "SELECT version FROM t_order WHERE order_id = %s"

config, keys, shards, log_file, seed = sys.argv[1:]
# A write takes less than `settle` of the route table, or it does not count.
SETTLE = 2.0
chance = random.Random(int(seed))
weights = list(itertools.accumulate(1 / (rank + 1) for rank in range(BUYERS)))
places = dict(shard.split("=") for shard in shards.split(","))
connections = {}


def database(shard):
    if shard not in connections:
        host, rest = places[shard].split(":")
        port, name = rest.split("/")
        connections[shard] = pymysql.connect(
            host=host, port=int(port), user="keymill", password="secret", database=name,
            autocommit=True, connect_timeout=2, read_timeout=2, write_timeout=2,
            # Otherwise writers of new ids wait for each other's gaps.
            init_command="SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    return connections[shard]


def ask(shard, statement, values=()):
    try:
        with database(shard).cursor() as cursor:
            cursor.execute(statement, values)
            return cursor.fetchone()
    except Exception:
        forget(shard)
        raise


def forget(shard):
    """Ends the connection, and with it what is not committed."""
    if shard in connections:
        connections.pop(shard)._force_close()


def route(router, id):
    """Where an order is now. A process that lost its lease waits until the store has answered it again."""
    while True:
        try:
            return router.route(id)
        except keymill.KeymillError as error:
            if error.code != "LEASE_LOST":
                raise
            time.sleep(0.05)


def write(router, id, row):
    """Writes the order to the shard that decides, and makes the row of the other one the same; again, by a new route, until both are committed."""
    while True:
        began = time.monotonic()
        place = route(router, id)
        if place.paused:
            time.sleep(0.05)
            continue
        shards = [shard for shard in (place.write, place.mirror) if shard]
        try:
            for shard in shards:
                ask(shard, "START TRANSACTION")
            ask(place.write, LOCK, (id,))
            ask(place.write, WRITE, row)
            if place.mirror:
                same = ask(place.write, LOCK, (id,))
                ask(place.mirror, LOCK, (id,))
                ask(place.mirror, SAME, same)
            if router.is_current(place) if place.mirror else time.monotonic() - began < SETTLE:
                for shard in shards:
                    ask(shard, "COMMIT")
                return place.write
            for shard in shards:
                ask(shard, "ROLLBACK")
        except pymysql.MySQLError:
            for shard in shards:
                forget(shard)
            time.sleep(0.05)


def shop(mill, log):
    router, numbers = mill.router("orders"), keymill.OrderNumbers.open(keys, "acme", "t_order")
    orders, mine = mill.business("order", counters=1024, deadline="60s"), []
    while not os.path.exists(log_file + ".stop"):
        now = round(time.time() * 1000)
        if mine and chance.random() < 0.2:
            order = chance.choice(mine)
            order[3] += 1
            verb = "changed"
        else:
            buyer = bisect.bisect(weights, chance.random() * weights[-1]) + 1
            id = orders.next(buyer)
            order = [id, numbers.seal(id), buyer, 1, now]
            verb = "placed"
        id, number, buyer, version, created = order
        shard = write(router, id, (id, number, numbers.version, buyer, version, created))
        print(round(time.time() * 1000), verb, id, number.hex(), buyer, version, shard, file=log, flush=True)
        if verb == "placed":
            mine.append(order)
        id, _, _, version, _ = chance.choice(mine)
        found = None
        try:
            place = route(router, id)
            found = ask(place.read, READ, (id,))
        except pymysql.MySQLError:
            continue
        if found != (version,):
            print("WRONG", id, f"version {version}, read {found} from {place}", file=log, flush=True)
        time.sleep(0.005)


with keymill.open(config) as mill, open(log_file, "w") as log:
    shop(mill, log)
