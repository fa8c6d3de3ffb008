"""Splits the hottest of four shards while programs in Java, Python and Node write to them, and then looks for every order.

    split.py MILL SERVER FOLDER JAVA PYTHON NODE [--long]

MILL is the store of ids and routes, SERVER is `HOST:PORT` of the databases shop1 to shop4. JAVA, PYTHON and NODE are command lines of the
shop, to which its arguments are added. What is typed and answered goes to standard output: that is the transcript of
docs/live-moves.md. FOLDER gets the logs and `moves.csv`, the load of each shard over time.

On the way, the move is undone in its middle, a program is stopped by a signal for the time of a step, and the command that copies is
killed. With --long more programs run for longer, and every move of the plan is made.
"""

import collections
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import keymill
import pymysql

sys.path.insert(0, str(Path(__file__).parent.parent))
from stage import Program, Stage

IS_LONG = "--long" in sys.argv
config, server, folder, *languages = [word for word in sys.argv[1:] if word != "--long"]
folder = Path(folder)
SHARDS = ["s1", "s2", "s3", "s4"]
PLACES = {shard: f"{server}/shop{shard[1]}" for shard in SHARDS}
FILES = {shard: f"{shard}=file:{folder}/{shard}.toml" for shard in SHARDS}
KEYS, PLAN = folder / "keys.toml", folder / "plan.toml"
ROWS_BEFORE = 20_000 if IS_LONG else 1_500
RATE = 1_000 if IS_LONG else 200
WATCH = 30 if IS_LONG else 2
TABLE = """version = 1
settle = "2s"
[[range]]
upper = 32767
shard = "s1"
[[range]]
upper = 49151
shard = "s2"
[[range]]
upper = 65535
shard = "s3"
"""
# The store's address has a password. On a busy machine the operator waits longer for an answer than the programs.
os.environ["KEYMILL_CONFIG"] = f"{config}&timeout=60s"
stage = Stage(folder)
say, type_in, until, programs = stage.say, stage.type_in, stage.until, stage.programs


def keymill_command(*words):
    return ["keymill", *map(str, words)]


def answer(*words):
    return subprocess.run(keymill_command(*words), capture_output=True, text=True, check=True).stdout


def sql(shard, statement, values=()):
    host, rest = PLACES[shard].split(":")
    port, name = rest.split("/")
    connection = pymysql.connect(host=host, port=int(port), user="keymill", password="secret", database=name, autocommit=True)
    with connection, connection.cursor() as cursor:
        cursor.execute(statement, values)
        return cursor.fetchall()


def placed():
    return sum(len(program.lines()) for program in programs)


def copy(old, new, *more):
    return ("move", "copy", "orders", "--table", "t_order", "--key", "order_id", "--from", FILES[old], "--to", FILES[new], *more)


def copy_and_kill(old, new, since):
    """Copies slowly, and is killed before the end."""
    say("the command that copies is killed …")
    words = copy(old, new, "--rows-per-second", RATE, "--wait", "--yes")
    process = subprocess.Popen(keymill_command(*words), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    # Programs write the rows of now to both shards.
    copied = lambda: sql(new, "SELECT COUNT(*) FROM t_order WHERE created_at < FROM_UNIXTIME(%s)", (since,))[0][0]
    until("some rows are copied", lambda: process.poll() is not None or copied() > 50)
    if process.poll() is not None:
        raise SystemExit(f"the copy ended with {process.returncode} before it was killed")
    process.kill()
    process.wait()
    print(f"{copied()} rows were copied")
    say("… and goes on where it stopped")
    type_in(*copy(old, new, "--rows-per-second", 20 * RATE, "--wait", "--yes"))


def compare(old, new):
    say("both shards are compared, while programs write to both")
    type_in("move", "verify", "orders", "--table", "t_order", "--key", "order_id", "--from", FILES[old], "--to", FILES[new], "--wait", "--yes")


def follow(frozen=0):
    """Until all programs but so many run the present table."""
    def do():
        table, *readers = re.findall(r"version:? (\d+)", answer("move", "status", "orders"))
        return sum(reader != table for reader in readers) <= frozen
    until("all follow", do)


def freeze_a_program_for_a_step():
    frozen = programs[1]
    follow()
    time.sleep(WATCH)
    frozen.process.send_signal(signal.SIGSTOP)
    say(f"{frozen.name} is stopped by a signal: no step is made while it may still answer by an old table")
    try:
        type_in("move", "next", "orders", "--yes")
        follow(1)
        # On a busy machine its row may have ended by now.
        if type_in("move", "next", "orders", "--watch", "0s", "--yes", fails=None)[0] != 0:
            type_in("move", "next", "orders", "--watch", "0s", "--wait", "--yes")
    finally:
        frozen.process.send_signal(signal.SIGCONT)
    before = len(frozen.lines())
    say(f"{frozen.name} runs again: it refuses ids of the range until it has read the new table, and goes on")
    until("it goes on", lambda: len(frozen.lines()) > before + 20)


def make(number, old, new):
    say(f"move {number}: {old} → {new}")
    since = time.time()
    type_in("move", "start", "orders", "--plan", PLAN, "--move", number, "--watch", f"{WATCH}s", "--wait", "--yes")
    type_in("move", "status", "orders", keep=20)
    copy_and_kill(old, new, since)
    compare(old, new)
    type_in("move", "next", "orders", "--wait", "--yes")
    type_in("move", "next", "orders", "--wait", "--yes")
    say("something looks wrong: back to where all ids are read from the old shard, and then on again")
    type_in("move", "back", "orders", "--wait", "--yes")
    compare(old, new)
    type_in("move", "next", "orders", "--wait", "--yes")
    freeze_a_program_for_a_step()
    type_in("move", "next", "orders", "--wait", "--yes")
    compare(old, new)
    type_in("move", "finish", "orders", "--wait", "--yes")
    for program in programs:
        program.check()


def orders_of_logs():
    """What the programs acknowledged: of each id its order number, its buyer and its last version."""
    orders, load, seconds = {}, collections.defaultdict(collections.Counter), set()
    for program in programs:
        for line in program.lines():
            if line.startswith("WRONG"):
                raise SystemExit(f"{program.name}: {line}")
            ms, verb, id, number, buyer, version, shard = line.split()
            id = int(id)
            if verb == "placed":
                if id in orders:
                    raise SystemExit(f"id {id} was issued twice")
                orders[id] = (number, int(buyer), int(version))
            else:
                orders[id] = (*orders[id][:2], int(version))
            load[int(ms) // 1000][shard] += 1
    first = min(load)
    with open(folder / "moves.csv", "w") as file:
        print("seconds", *SHARDS, sep=",", file=file)
        for second in range(first, max(load)):
            print(second - first, *(load[second][shard] for shard in SHARDS), sep=",", file=file)
    return orders


def find_all(orders):
    """Each order by its id, by its order number and by its buyer."""
    of_buyers = collections.Counter(buyer for _, buyer, _ in orders.values())
    numbers = keymill.OrderNumbers.open(str(KEYS), "acme", "t_order")
    connections = {shard: pymysql.connect(host=server.split(":")[0], port=int(server.split(":")[1]), user="keymill", password="secret",
                                          database=f"shop{shard[1]}") for shard in SHARDS}

    def ask(shard, statement, *values):
        with connections[shard].cursor() as cursor:
            cursor.execute(statement, values)
            return cursor.fetchall()

    with keymill.open(config) as mill:
        router = mill.router("orders")
        for id, (number, buyer, version) in orders.items():
            number = bytes.fromhex(number)
            by_id = ask(router.route(id).read, "SELECT order_no, buyer_id, version, shard_gene FROM t_order WHERE order_id = %s", id)
            if by_id != ((number, buyer, version, router.route(id).gene),):
                raise SystemExit(f"order {id}, version {version}, is not found: {by_id}")
            by_number = ask(router.route_order_no(number).read, "SELECT order_id FROM t_order WHERE order_no = %s", number)
            if by_number != ((id,),) or numbers.unseal(number) != id:
                raise SystemExit(f"order {id} is not found by its number: {by_number}")
        for buyer, count in of_buyers.items():
            found = ask(router.route_key(buyer).read, "SELECT COUNT(*) FROM t_order WHERE buyer_id = %s", buyer)[0][0]
            # A program that ended between writing and answering may have written one more.
            if found < count:
                raise SystemExit(f"buyer {buyer} has {found} orders of {count}")
    everywhere = collections.Counter(id for shard in SHARDS for (id,) in ask(shard, "SELECT order_id FROM t_order"))
    twice = [id for id, count in everywhere.items() if count > 1]
    if twice or set(orders) - set(everywhere):
        raise SystemExit(f"{len(twice)} orders are on two shards, such as {twice[:3]}; {len(set(orders) - set(everywhere))} are on none")
    return len(of_buyers), {shard: ask(shard, "SELECT COUNT(*) FROM t_order")[0][0] for shard in SHARDS}


say("four shards; s4 is empty; the ids and the table of routes are in a store beside them")
(folder / "routes.toml").write_text(TABLE)
KEYS.touch(mode=0o600)
KEYS.write_text(f'seal_with = 1\n[key]\n1 = "{os.urandom(32).hex()}"\n')
for shard, place in PLACES.items():
    file = folder / f"{shard}.toml"
    file.touch(mode=0o600)
    file.write_text(f'store = "mysql://keymill:secret@{place}?timeout=60s"\n')
    table = subprocess.run(keymill_command("ddl", "business:order", "t_order", "--dialect", "mariadb"), capture_output=True, text=True, check=True)
    for statement in "\n".join(line for line in table.stdout.splitlines() if not line.startswith("--")).split(";"):
        if statement.strip():
            sql(shard, statement)
type_in("init", "business:order?counters=1024", keep=3)
type_in("route", "put", "orders", folder / "routes.toml", "--yes")

say("programs in Java, Python and Node place orders, change them and read them again")
names = ["java", "python", "node"]
places = ",".join(f"{shard}={place}" for shard, place in PLACES.items())
for seed in range(2 if IS_LONG else 1):
    for name, command in zip(names, languages):
        words = lambda log: [*shlex.split(command), config, KEYS, places, log, seed]
        programs.append(Program(folder, f"{name}-{seed}", words))
until("enough orders", lambda: placed() >= ROWS_BEFORE, 900)

say("which shard is hot, and what would be moved")
type_in("heat", "business:order", "--ranges", "4")
_, plan = type_in("move", "plan", "orders", "--shards", ",".join(SHARDS), "--hot", "business:order", "--out", PLAN)
moves = re.findall(r"^move \d+: genes \S+, (\S+) to (\S+),", plan, re.MULTILINE)
made = moves if IS_LONG else moves[:1]
for number, (old, new) in enumerate(made, 1):
    make(number, old, new)

say("the programs go on for some seconds, and end")
more = placed() + ROWS_BEFORE // 3
until("more orders", lambda: placed() >= more)
for program in programs:
    program.end()

say("the old rows are deleted, in small parts")
for old, new in dict.fromkeys(made):
    type_in("move", "clean", "orders", "--table", "t_order", "--key", "order_id", "--from", FILES[old], "--to", FILES[new], "--older-than", "0s", "--changed-too", "--yes")
orders = orders_of_logs()
buyers, rows = find_all(orders)
say(f"{len(orders)} orders of {buyers} buyers: each found by its id, by its order number and by its buyer, none lost, none twice")
print(", ".join(f"{shard}: {count} rows" for shard, count in rows.items()))
