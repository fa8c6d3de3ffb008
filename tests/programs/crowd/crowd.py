"""Changes fifty hot ids through `Shards` until a file says stop, and writes down what was acknowledged.

    python crowd.py MILL KIND SHARDS LOG NAME WORKERS

KIND is `mysql` or `postgres`, SHARDS is `s1=HOST:PORT/DATABASE,…`. The program ends when the file LOG.stop is there. LOG gets these lines, whose
times are nanoseconds of the machine's monotonic clock:

    try WORKER ID COUNTER TOKEN COUNTER TOKEN STATE     what a work has found, and what it leaves: before its commit
    ack WORKER ID COUNTER TOKEN BEGAN ENDED             the write is acknowledged
    no WORKER ID BEGAN ENDED sure|maybe CODE WORDS      it is not; `maybe` it was written all the same
    read WORKER ID COUNTER TOKEN BEGAN ENDED            what a plain read has found
    hold WORKER NUMBER                                  no write of this worker is under way, until the file LOG.hold is gone
    WRONG …                                             rows of one id that do not fit each other

A counter rises by one with each write of an id, and a token is of one run of one work. Where an id is not there both are `-`; a delete has a
counter and a token of its own, and the STATE `gone`. An id that comes back goes on from the clock, in microseconds, which is higher than any counter
before. Otherwise STATE is the items of the order as `N:SEAT,…`, or `none`.
"""

import os
import random
import sys
import threading
import time
from pathlib import Path

import keymill
import psycopg
import pymysql

sys.path.insert(0, str(Path(__file__).parent.parent))
from pool import Pool

IDS = [(32768 << 47) + 2 * at for at in range(50)]
ITEMS = range(1, 7)
TABLES = {"t_order": "order_id", "t_item": "item_of"}
READ = {
    "mysql": "SELECT counter, token, note, (SELECT GROUP_CONCAT(CONCAT(n, ':', seat) ORDER BY n) FROM t_item WHERE item_of = order_id) FROM t_order WHERE order_id = %s",
    "postgres": "SELECT counter, token, note, (SELECT string_agg(n || ':' || seat, ',' ORDER BY n) FROM t_item WHERE item_of = order_id) FROM t_order WHERE order_id = %s",
}
PASSING = {"STORE_UNAVAILABLE", "NOT_READY", "LEASE_LOST"}

config, kind, places, log_file, name, workers = sys.argv[1:]
log = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
failed = []


def note(*words):
    os.write(log, (" ".join(map(str, words)) + "\n").encode())


def database(place):
    host, rest = place.split(":")
    port, shop = rest.split("/")

    def connect():
        if kind == "postgres":
            return psycopg.connect(host=host, port=port, user="shop", password="secret", dbname=shop, connect_timeout=10)
        # Otherwise writers of new ids wait for each other's gaps.
        return pymysql.connect(host=host, port=int(port), user="shop", password="secret", database=shop, charset="utf8mb4", connect_timeout=10,
                               read_timeout=60, init_command="SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")

    return Pool(connect)


class Worker:
    def __init__(self, shards, number):
        self.shards, self.number, self.runs, self.chance = shards, number, 0, random.Random()

    def run(self):
        held = None
        try:
            while not os.path.exists(log_file + ".stop"):
                try:
                    holds = Path(log_file + ".hold").read_text()
                except FileNotFoundError:
                    self.write(self.chance.choice(IDS))
                    if self.chance.random() < 0.5:
                        self.read(self.chance.choice(IDS))
                    continue
                if holds and holds != held:
                    held = holds
                    note("hold", self.number, holds)
                time.sleep(0.02)
        except BaseException as error:
            failed.append(error)
            raise

    def write(self, id):
        done, began = [], time.monotonic_ns()
        try:
            self.shards.run(id, lambda connection: self.work(connection, id, done))
        except (keymill.KeymillError, pymysql.MySQLError, psycopg.Error) as error:
            ended = time.monotonic_ns()
            code = error.code if isinstance(error, keymill.KeymillError) else type(error).__name__
            if isinstance(error, keymill.KeymillError) and code not in PASSING:
                raise
            sure = "maybe" if "not acknowledged" in str(error) else "sure"
            note("no", self.number, id, began, ended, sure, code, *str(error).split())
            return
        ended = time.monotonic_ns()
        note("ack", self.number, id, *done, began, ended)

    def work(self, connection, id, done):
        chance = self.chance
        self.runs += 1
        token = f"{name}/{self.number}/{self.runs}"
        first = (id - IDS[0]) // 2 * 100
        with connection.cursor() as cursor:
            cursor.execute("SELECT counter, token FROM t_order WHERE order_id = %s FOR UPDATE", (id,))
            before = cursor.fetchone()
            items = {}
            if before:
                counter = before[0] + 1
                cursor.execute("SELECT n, seat FROM t_item WHERE item_of = %s FOR UPDATE", (id,))
                items = dict(cursor.fetchall())
            else:
                cursor.execute("INSERT INTO t_order (order_id, counter, token) VALUES (%s, 0, %s)", (id, token))
                # The id is locked from now on.
                counter = time.monotonic_ns() // 1000

            def insert(n):
                seat = chance.choice([first + at for at in ITEMS if first + at not in items.values()])
                cursor.execute("INSERT INTO t_item (item_of, n, seat, name) VALUES (%s, %s, %s, %s)", (id, n, seat, f"名{n}"))
                items[n] = seat

            def delete(n):
                cursor.execute("DELETE FROM t_item WHERE item_of = %s AND n = %s", (id, n))
                del items[n]

            if chance.random() < 0.01:
                time.sleep(chance.uniform(0.02, 0.2))
            what, there = chance.randrange(10), sorted(items)
            absent = [n for n in ITEMS if n not in items]
            is_gone = False
            if not before:
                for n in chance.sample(ITEMS, chance.randrange(4)):
                    insert(n)
            elif what == 0:
                for n in there:
                    delete(n)
                cursor.execute("DELETE FROM t_order WHERE order_id = %s", (id,))
                is_gone = True
            elif what == 1:
                # The whole order comes back at once, with other seats.
                for n in there:
                    delete(n)
                cursor.execute("DELETE FROM t_order WHERE order_id = %s", (id,))
                cursor.execute("INSERT INTO t_order (order_id, counter, token) VALUES (%s, 0, %s)", (id, token))
                for n in reversed(there):
                    insert(n)
            elif what in (2, 3) and absent:
                insert(chance.choice(absent))
            elif what == 4 and there:
                delete(chance.choice(there))
            elif what in (5, 6) and len(there) > 1:
                # Two rows exchange a value that only one row may have.
                one, two = chance.sample(there, 2)
                for n, seat in ((one, None), (two, items[one]), (one, items[two])):
                    cursor.execute("UPDATE t_item SET seat = %s WHERE item_of = %s AND n = %s", (seat, id, n))
                items[one], items[two] = items[two], items[one]
            elif what == 7 and there:
                # A key comes back.
                n = chance.choice(there)
                delete(n)
                insert(n)
            state = ",".join(f"{n}:{seat}" for n, seat in sorted(items.items()))
            if not is_gone:
                cursor.execute("UPDATE t_order SET counter = %s, token = %s, note = %s, amount = %s + 0.25 WHERE order_id = %s",
                               (counter, token, f"é'{state}", counter, id))
        note("try", self.number, id, *(before or "--"), counter, token, "gone" if is_gone else state or "none")
        done[:] = counter, token

    def read(self, id):
        began = time.monotonic_ns()
        try:
            with self.shards.read(id) as connection, connection.cursor() as cursor:
                cursor.execute(READ[kind], (id,))
                found = cursor.fetchone()
        except (keymill.KeymillError, pymysql.MySQLError, psycopg.Error) as error:
            if isinstance(error, keymill.KeymillError) and error.code not in PASSING:
                raise
            return
        ended = time.monotonic_ns()
        counter, token, said, items = found or ("-", "-", "é'", "")
        if said != f"é'{items or ''}":
            note("WRONG", id, counter, token, said, items)
        note("read", self.number, id, counter, token, began, ended)


def router_of(mill):
    """Its first look at the store may be cut off."""
    while True:
        try:
            return mill.router("orders")
        except keymill.StoreError as error:
            if error.code != "STORE_UNAVAILABLE":
                raise


with keymill.open(config) as mill:
    both = {shard: database(place) for shard, place in (word.split("=") for word in places.split(","))}
    shards = keymill.Shards(router_of(mill), both, tables=TABLES)
    threads = [threading.Thread(target=Worker(shards, number).run) for number in range(int(workers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
sys.exit(len(failed))
