"""Ten programs in four languages change fifty hot ids on two databases, while the range of these ids is moved there and back by the command.

    conduct.py SERVER SERVER FOLDER WRITES LANGUAGE=COMMAND…

Each SERVER is the URL of a server of `ci/servers`; the first one has the routes too. Each LANGUAGE has the command line of its program, to which the
arguments are added that `crowd.py` tells. FOLDER gets the logs. WRITES have to be acknowledged in all.

Meanwhile programs are killed and started again, or stopped by a signal for some seconds, and connections are broken. Then a second move goes back to
the first database, where the rows of before still are; nothing is broken from its copy on, so that it shows how long writes wait. Several times all
programs hold still, and both shards are looked at (`judge.py`). What is typed and answered goes to standard output, and at the end how long writes
have taken.
"""

import contextlib
import math
import os
import random
import re
import shlex
import signal
import sys
import threading
import time
from pathlib import Path

import psycopg
import pymysql

sys.path.insert(0, str(Path(__file__).parent.parent))
from judge import History, Log
from stage import Program, Stage

*servers, folder, writes = sys.argv[1:5]
commands = sys.argv[5:]
folder, writes = Path(folder), int(writes)
kind = "postgres" if servers[0].startswith("postgres") else "mysql"
# The programs' login, also in the store: all its connections may break.
config = f"{servers[0].replace('//keymill:', '//shop:')}?reader_lease=3s"
# The databases of the two servers share a name.
PLACES = {name: re.sub("/[^/]*$", "/shop", server.split("@")[1]) for name, server in zip(["s1", "s2"], servers)}
places = ",".join(f"{name}={place}" for name, place in PLACES.items())
ROOT = {"mysql": {"user": "root", "password": "", "database": "mysql"}, "postgres": {"user": "postgres", "password": "root", "database": "postgres"}}[kind]
DATABASES = {
    "mysql": ["DROP DATABASE IF EXISTS shop", "CREATE DATABASE shop", "CREATE USER IF NOT EXISTS shop@'%' IDENTIFIED BY 'secret'",
              "GRANT ALL ON shop.* TO keymill@'%', shop@'%'", "GRANT SELECT, INSERT, UPDATE, DELETE ON ids.* TO shop@'%'"],
    "postgres": ["DROP DATABASE IF EXISTS shop", "DROP ROLE IF EXISTS shop", "CREATE ROLE shop LOGIN PASSWORD 'secret'", "CREATE DATABASE shop OWNER keymill"],
}
WORKERS = 3
PROGRAMS = {"rust": 2, "java": 3, "python": 3, "node": 2}
# All but the last step go back again.
ROUNDS = [1, 2, 3, 4, 2, 4]
TABLE = """version = 1
settle = "1s"
[[range]]
upper = 65535
shard = "s1"
"""
TABLES = {
    "mysql": [
        "CREATE TABLE t_order (order_id BIGINT PRIMARY KEY, counter BIGINT NOT NULL, token VARCHAR(40) NOT NULL, note VARCHAR(120) CHARACTER SET latin1, amount DECIMAL(24,6))",
        "CREATE TABLE t_item (item_of BIGINT, n BIGINT, seat BIGINT UNIQUE, name VARCHAR(40) CHARACTER SET utf8mb4, PRIMARY KEY (item_of, n), FOREIGN KEY (item_of) REFERENCES t_order (order_id))",
    ],
    "postgres": [
        "CREATE TABLE t_order (order_id bigint PRIMARY KEY, counter bigint NOT NULL, token varchar(40) NOT NULL, note varchar(120), amount numeric(24,6))",
        "CREATE TABLE t_item (item_of bigint REFERENCES t_order, n bigint, seat bigint UNIQUE, name varchar(40), PRIMARY KEY (item_of, n))",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON t_order, t_item TO shop",
    ],
}
stage = Stage(folder)
say, until = stage.say, stage.until


class Shard:
    def __init__(self, name, place):
        self.name, self.place = name, place
        self.host, rest = place.split(":")
        self.port = rest.split("/")[0]
        self.file = folder / f"{name}.toml"
        self.file.touch(mode=0o600)
        scheme = "mysql" if kind == "mysql" else "postgres"
        self.file.write_text(f'store = "{scheme}://keymill:secret@{place}?timeout=60s"\n')

    def ask(self, *statements, user="keymill", password="secret", database="shop"):
        """Rows of the last statement."""
        if kind == "mysql":
            connection = pymysql.connect(host=self.host, port=int(self.port), user=user, password=password, database=database, charset="utf8mb4", autocommit=True)
        else:
            connection = psycopg.connect(host=self.host, port=self.port, user=user, password=password, dbname=database, autocommit=True)
        with connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def break_one(self):
        """Ends a connection of a program in the middle of what it does; answers with how many."""
        if kind == "postgres":
            found = self.ask("SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity WHERE usename = 'shop' ORDER BY random() LIMIT 1) one", **ROOT)
            return len(found)
        found = self.ask("SELECT ID FROM information_schema.PROCESSLIST WHERE USER = 'shop' ORDER BY RAND() LIMIT 1", **ROOT)
        for (number,) in found:
            with contextlib.suppress(pymysql.MySQLError):
                self.ask(f"KILL {number}", **ROOT)
        return len(found)

    def rows(self):
        """All rows."""
        return self.ask("SELECT * FROM t_order ORDER BY 1"), self.ask("SELECT * FROM t_item ORDER BY 1, 2")


class Runner:
    """A program that is started again where it was killed."""

    def __init__(self, language, command, number):
        self.language, self.command, self.number, self.starts, self.thaws = language, shlex.split(command), number, 0, None
        self.start()

    def start(self):
        self.starts += 1
        name = f"{self.language}-{self.number}.{self.starts}"
        words = lambda log: [*self.command, config, kind, places, log, name, WORKERS]
        self.program = Program(folder, name, words)
        self.log = Log(self.program.log)
        stage.programs.append(self.program)

    def kill(self):
        stage.programs.remove(self.program)
        self.program.process.kill()
        self.program.process.wait()
        self.thaws = None
        history.follow(self.log, self.language)

    def freeze(self, until):
        self.program.process.send_signal(signal.SIGSTOP)
        self.thaws = until

    def thaw(self, at=math.inf):
        if self.thaws and self.thaws <= at:
            self.program.process.send_signal(signal.SIGCONT)
            self.thaws = None


history = History()
runners, shards, windows = [], {}, []
# A program is neither killed nor started while logs are read or all hold still.
quiet = threading.Lock()
is_calm, is_copied = threading.Event(), threading.Event()
breaks = dict.fromkeys(["connections broken", "programs killed", "programs stopped for some seconds"], 0)


def havoc():
    """Breaks connections, kills programs and stops them."""
    chance, at = random.Random(), time.time() + 5
    while not is_calm.wait(chance.uniform(0.05, 0.3)):
        breaks["connections broken"] += chance.choice(list(shards.values())).break_one()
        with quiet:
            for runner in runners:
                runner.thaw(time.time())
            if time.time() < at:
                continue
            at, runner = time.time() + chance.uniform(3, 8), chance.choice(runners)
            # A program that stands still while the move begins may write by a route of before: docs/moving-a-shard.md, the steps.
            if is_copied.is_set() and chance.random() < 0.4:
                runner.freeze(time.time() + chance.uniform(1, 5))
                breaks["programs stopped for some seconds"] += 1
            else:
                runner.kill()
                runner.start()
                breaks["programs killed"] += 1
    with quiet:
        for runner in runners:
            runner.thaw()


def acknowledged():
    with quiet:
        for runner in runners:
            history.follow(runner.log, runner.language)
    return sum(history.acknowledged.values())


def move(verb, *words, rows=False, may_fail=False):
    """Types a step; answers with what is wrong, where it may fail."""
    began = time.monotonic_ns()
    if rows:
        words = [*words, "--table", "t_order", "--key", "order_id", "--table", "t_item", "--key", "item_of",
                 *(word for option, name in zip(["--from", "--to"], sides) for word in (option, f"{name}=file:{shards[name].file}"))]
    code, said = stage.type_in("move", verb, "orders", *words, "--wait", "--yes", fails=None)
    while "`--gone MEMBER`" in said:
        # The operator looks whether they have ended: programs that were killed before they had followed.
        lost = set(re.findall(r":(\d+): version \d+, row ended", stage.type_in("move", "status", "orders", keep=0)[1]))
        with quiet:
            live = {str(runner.program.process.pid) for runner in runners}
        if lost & live:
            time.sleep(0.5)
        code, said = stage.type_in("move", verb, "orders", *words, *[] if lost & live else ["--gone", "all"], "--wait", "--yes", fails=None)
    windows.append((verb, began, time.monotonic_ns()))
    with open(folder / "steps.log", "a") as file:
        print(*windows[-1], file=file)
    if code and not may_fail:
        raise SystemExit(said)
    return said if code else ""


def compare():
    """Until both shards are alike: connections break meanwhile."""
    for _ in range(20):
        move("verify", "--repair", "--delete", rows=True, may_fail=True)
        if "verified: no" not in stage.type_in("move", "status", "orders", keep=0)[1]:
            return
    raise SystemExit("the shards are not alike after twenty comparisons")


def copy():
    """Where a row of before has the unique value of another one, the answer says what to type."""
    for _ in range(20):
        said = move("copy", rows=True, may_fail=True)
        if not said:
            return
        if "`keymill move verify --repair --delete`" not in said:
            raise SystemExit(said)
        move("verify", "--repair", "--delete", rows=True, may_fail=True)
    raise SystemExit("the rows are not copied after twenty times")


@contextlib.contextmanager
def held():
    """No write is under way."""
    with quiet:
        for runner in runners:
            runner.thaw()
        number = str(time.time_ns())
        files = [runner.log.path.with_name(runner.log.path.name + ".hold") for runner in runners]
        for file in files:
            file.with_suffix(".new").write_text(number)
            file.with_suffix(".new").rename(file)

        def all_hold():
            for runner in runners:
                history.follow(runner.log, runner.language)
            return all(list(runner.log.holds.values()) == [number] * WORKERS for runner in runners)

        until("all programs hold still", all_hold)
        try:
            yield
        finally:
            for file in files:
                file.unlink()


def states(shard):
    """Of each id its counter, token and items, after a look at what a write leaves beside them."""
    orders, rows = shard.rows()
    items = {}
    for item_of, n, seat, name in rows:
        items.setdefault(item_of, []).append(f"{n}:{seat}")
        if name != f"名{n}":
            raise SystemExit(f"{shard.name}: item {n} of id {item_of} is called {name}")
    found = {}
    for id, counter, token, note, amount in orders:
        state = ",".join(items.pop(id, []))
        if note != f"é'{state}" or float(amount) != counter + 0.25:
            raise SystemExit(f"{shard.name}: the rows of id {id} do not fit each other: {counter} {token} {note} {amount}, items {state}")
        found[id] = (counter, token, state or "none")
    if items:
        raise SystemExit(f"{shard.name}: items without an order: {items}")
    return found


def end_on(faults):
    faults = list(faults)
    for fault, what in faults[:20]:
        print(f"{fault.upper()}: {what}")
    if faults:
        raise SystemExit(f"{len(faults)} faults")


def look(names, what):
    """All these shards have what was acknowledged, or what was written later and not acknowledged."""
    with held():
        found = [states(shards[name]) for name in names]
        end_on(fault for name, rows in zip(names, found) for fault in history.faults_of_shard(name, rows))
        lag = [id for id in {id for rows in found for id in rows} if len({rows.get(id) for rows in found}) > 1]
        say(f"{what}: all that was acknowledged is in {' and '.join(names)}" + f"; {len(lag)} ids differ by writes that were not" * (len(names) > 1))
        if what == "before the end":
            compare()
            if shards["s1"].rows() != shards["s2"].rows():
                raise SystemExit("a comparison found both shards alike, and they are not")
            say("both shards are alike")


def percentile(values, share):
    return values[min(len(values) - 1, int(len(values) * share))] / 1e6


def table_of_waits(calm):
    """How long writes have taken, in milliseconds, by what was typed when they began: those of the time until `calm`, and those after it."""
    within = lambda verbs, began: any(verb in verbs and since <= began < until for verb, since, until in windows)
    for is_calm, title in enumerate(["with programs that are killed and stopped, and broken connections", "with all programs alive"]):
        print(f"\nwrites, {title}:\n{'':>18} {'count':>8} {'p50 ms':>9} {'p99 ms':>9} {'max ms':>9}")
        for language in dict.fromkeys(runner.language for runner in runners):
            rows = {"outside": [], "in a step": [], "in `finish`": []}
            for who, began, ended in history.waits:
                if who == language and is_calm == (began > calm):
                    name = "in `finish`" if within(["finish"], began) else "in a step" if within(["start", "next", "back"], began) else "outside"
                    rows[name].append(ended - began)
            for name, values in rows.items():
                if values:
                    values.sort()
                    print(f"{language + ' ' + name:>18} {len(values):8} {percentile(values, 0.5):9.1f} {percentile(values, 0.99):9.1f} {values[-1] / 1e6:9.1f}")
        since, until = [(since, until) for verb, since, until in windows if verb == "finish"][is_calm]
        acks = sorted([since, *(ended for _, _, ended in history.waits if since < ended < until), until])
        print(f"the pause: no write was acknowledged for {max(b - a for a, b in zip(acks, acks[1:])) / 1e6:.0f} ms")


os.environ["KEYMILL_CONFIG"] = f"{servers[0]}?reader_lease=3s&timeout=60s"
say("two databases, of which s2 is empty; the routes are in a store beside them")
(folder / "routes.toml").write_text(TABLE)
for name, place in PLACES.items():
    shards[name] = Shard(name, place)
    shards[name].ask(*DATABASES[kind], **ROOT)
    shards[name].ask(*TABLES[kind])
stage.type_in("route", "put", "orders", folder / "routes.toml", "--yes")
if kind == "postgres":
    shards["s1"].ask("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO shop", database="ids")

for word in commands:
    language, command = word.split("=", 1)
    runners += [Runner(language, command, number) for number in range(PROGRAMS[language])]
say(f"{len(runners)} programs with {WORKERS} writers each")
# The writes are spread over the steps.
steps, done = sum(ROUNDS) + len(ROUNDS) - 1 + ROUNDS[-1] + 3, 0


def go_on():
    global done
    done += 1
    share = writes * done // steps
    until(f"{share} writes", lambda: acknowledged() >= share, 1800)


def begin():
    """A move of the range to the other shard."""
    file = folder / f"to-{sides[1]}.toml"
    stage.type_in("move", "plan", "orders", "--shards", {"s1": "s1", "s2": "s1,s2"}[sides[1]], "--out", file)
    move("start", "--plan", file, "--watch", "0s")
    copy()
    compare()
    look(sides, "mirrored")


def cut_over(steps):
    for _ in range(steps):
        move("next")
        go_on()


sides = ["s1", "s2"]
go_on()
breaking = threading.Thread(target=havoc, daemon=True)
breaking.start()
begin()
is_copied.set()
for count in ROUNDS[:-1]:
    cut_over(count)
    look(sides, f"after {count} steps")
    move("back")
    go_on()
    compare()
cut_over(ROUNDS[-1])
look(sides, "before the end")
move("finish")
look(["s2"], "finished")
go_on()
sides.reverse()
is_copied.clear()
begin()
is_calm.set()
breaking.join()
calm = time.monotonic_ns()
cut_over(ROUNDS[-1])
look(sides, "before the end")
move("finish")
until("all writes", lambda: acknowledged() >= writes, 1800)
look(["s1"], "at the end")
for runner in runners:
    runner.program.end()
acknowledged()
end_on(history.faults())
table_of_waits(calm)
print("\nwrites that were not acknowledged:")
for (sure, code, words), count in history.refusals.most_common(20):
    print(f"{count:8} {sure} {code} {words}")
reads = sum(len(written.reads) for written in history.ids.values())
deletes = sum(one.state == "gone" for written in history.ids.values() for one in written.acknowledged())
print(*(f"{count} {what}" for what, count in breaks.items()), sep=", ")
print(f"{sum(history.acknowledged.values())} acknowledged writes, {deletes} of them deletes, and {reads} plain reads of {len(history.ids)} ids: 0 lost, 0 vanished")
