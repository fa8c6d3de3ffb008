"""Ratios against what Python offers itself and against rivals from PyPI, in one run: losing rows stay.

    python -m venv /tmp/bench && /tmp/bench/bin/pip install WHEEL snowflake-id sonyflake-turbo uuid_utils python-ulid numpy
    /tmp/bench/bin/python bindings/python/benches/bench.py [--quick]

Rounds of all rows are interleaved; a row's time is its fastest round in CPU time of the calling thread, less the bare loop's
where the row is a loop of calls. Needs a C compiler and Python's headers for the bare call.
"""

import array
import collections
import functools
import importlib.util
import itertools
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import uuid

import keymill

quick = "--quick" in sys.argv
ROUNDS, COUNT = (7, 20_000) if quick else (41, 100_000)
MORE = 20  # batches are so quick that a row of them makes more ids
FIRST = 1 << 40  # all counters count where ids of a busy table lie: ints of two digits of Python's


def raw_call():
    """The C function of raw.c, or None without a compiler."""
    folder = tempfile.mkdtemp()
    library = os.path.join(folder, "raw.so")
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "raw.c")
    command = ["cc", "-O2", "-shared", "-fPIC", "-I", sysconfig.get_paths()["include"], source, "-o", library]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    spec = importlib.util.spec_from_file_location("raw", library)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


mill = keymill.open("memory:")
options = {"start": FIRST, "max_step": 10**8, "buffer": "600s"}
orders = mill.segment("orders", **options)
batches = mill.segment("batches", **options)
threads = mill.segment("threads", order="thread", **options)
serial = mill.serial("cust_info", "custid", date="yyyyMMdd", number="000000000000")
# A layout that its own clock does not hold back, to see what a call costs.
free = mill.snowflake("free", worker=1, layout="time:31@1s,worker:1,seq:31")
twitter = mill.snowflake("twitter", worker=1)
sales = mill.business("order")
declared = keymill.lazy("segment:declared", **options)
keymill.use(mill)
numbers = array.array("Q", bytes(8000))
raw = raw_call()


class LockCounter:
    def __init__(self):
        self.lock, self.last = threading.Lock(), FIRST

    def next(self):
        with self.lock:
            self.last += 1
            return self.last


class SeedSerial:
    """The way of the articles: a lock, the date formatted each time."""

    def __init__(self):
        self.lock, self.last = threading.Lock(), 0

    def next(self):
        with self.lock:
            self.last += 1
            return time.strftime("%Y%m%d") + "%012d" % self.last


def calls(call):
    """A loop of calls through a name, as most programs write it."""

    def run():
        for _ in itertools.repeat(None, COUNT):
            call()

    return run


def methods(thing):
    """A loop of `thing.next()`: the interpreter finds the method at each turn, and is quick at it."""

    def run():
        for _ in itertools.repeat(None, COUNT):
            thing.next()

    return run


def stream(make):
    def run():
        collections.deque(itertools.islice(make(), COUNT), maxlen=0)

    return run


def batch(call):
    def run():
        for _ in itertools.repeat(None, COUNT // 1000 * MORE):
            call()

    return run


rows = {}
loops = set()  # rows that a bare loop is taken off


def row(name, run, loop=False):
    rows[name] = run
    if loop:
        loops.add(name)


def rival(name, make, loop=True):
    try:
        run = make()
    except ImportError:
        print(f"not here: {name}", file=sys.stderr)
        return
    row(name, run, loop)


row("bare loop", lambda: calls_nothing())


def calls_nothing():
    for _ in itertools.repeat(None, COUNT):
        pass


def calls_next(stream):
    for _ in itertools.repeat(None, COUNT):
        next(stream)


if raw:
    row("raw C-API function", methods(raw), True)
    row("raw C-API method", methods(raw.Counter()), True)
row("keymill next()", methods(orders), True)
row("next(keymill source)", lambda: calls_next(orders), True)
row("next(itertools.count)", lambda: calls_next(itertools.count(FIRST)), True)
row("keymill next(), order=thread", methods(threads), True)
row("keymill lazy next()", methods(declared), True)
row("keymill lazy()", calls(declared), True)
row("keymill source bound to a name", calls(orders.next), True)
row("keymill handle next()", methods(orders.handle()), True)
row("itertools.count", stream(lambda: itertools.count(FIRST)))
row("keymill iterator", stream(lambda: orders))
row("keymill handle iterator", stream(lambda: threads.handle()))
row("keymill take(1000)", batch(lambda: batches.take(1000)))
row("keymill fill(1000)", batch(lambda: batches.fill(numbers)))
row("keymill business next(42)", calls(functools.partial(sales.next, 42)), True)
row("keymill business next(a text of 16)", calls(functools.partial(sales.next, "buyer-0123456789")), True)
row("keymill business take(42, 1000)", batch(lambda: sales.take(42, 1000)))
row("keymill serial next()", methods(serial), True)
row("keymill serial take(1000)", batch(lambda: serial.take(1000)))
row("keymill snowflake next(), uncapped", methods(free), True)
row("keymill snowflake next(), leading its clock", methods(twitter), True)
row("threading.Lock counter", methods(LockCounter()), True)
row("Lock + strftime + %012d serial", methods(SeedSerial()), True)
row("uuid.uuid4()", calls(uuid.uuid4), True)


def snowflake_id():
    from snowflake import SnowflakeGenerator

    return calls(SnowflakeGenerator(42).__next__)


def sonyflake_turbo():
    from sonyflake_turbo import SonyFlake

    return calls(SonyFlake(0x1337, 0xCAFE, start_time=int(time.time()) - 10_000_000).__next__)


def uuid_utils():
    import uuid_utils

    return calls(uuid_utils.uuid7)


def python_ulid():
    from ulid import ULID

    return calls(ULID)


rival("snowflake-id next() (None above 4096/ms)", snowflake_id)
rival("sonyflake-turbo next() (waits above its rate)", sonyflake_turbo)
rival("uuid_utils.uuid7()", uuid_utils)
rival("python-ulid ULID()", python_ulid)

slow = {"snowflake", "sonyflake", "python-ulid", "uuid.uuid4", "Lock + strftime"}
best = dict.fromkeys(rows, float("inf"))
wall = dict.fromkeys(rows, float("inf"))
for source in (orders, batches, threads, declared):
    for _ in range(200):
        source.next()
for round in range(ROUNDS):
    for name, run in rows.items():
        if round >= 7 and any(name.startswith(start) for start in slow):
            continue
        count = COUNT * MORE if "(1000)" in name else COUNT
        began, cpu = time.perf_counter_ns(), time.thread_time_ns()
        run()
        best[name] = min(best[name], (time.thread_time_ns() - cpu) / count)
        wall[name] = min(wall[name], (time.perf_counter_ns() - began) / count)
loop = best.pop("bare loop")
times = {name: time - (loop if name in loops else 0) for name, time in best.items()}
waits = {name: wall[name] for name in times if wall[name] > 2 * best[name] + 20}


def start():
    """Seconds from the interpreter's start to the first id on SQLite, beyond the interpreter's own start."""

    def run(program):
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", program], check=True, cwd=folder)
            return time.perf_counter() - began

    program = "import keymill; keymill.open('sqlite:keymill.db').segment('orders').next()"
    bare, first = [], []
    for _ in range(5 if quick else 21):
        bare.append(run("pass"))
        first.append(run(program))
    return sorted(first)[len(first) // 2] - sorted(bare)[len(bare) // 2]


print(f"CPython {sys.version.split()[0]}, {os.cpu_count()} cores, keymill {keymill.__version__}\n")
print("| row | ns an id | times keymill next() |\n|---|---:|---:|")
base = times["keymill next()"]
for name, time_ in times.items():
    note = f" (waiting included: {waits[name]:.0f})" if name in waits else ""
    print(f"| {name} | {time_:.2f}{note} | {time_ / base:.3g} |")
goals = [
    ("next() / raw C-API function", "keymill next()", "raw C-API function", 1.2),
    ("next() / raw C-API method", "keymill next()", "raw C-API method", 1.2),
    ("iterator / itertools.count", "keymill iterator", "itertools.count", 1.3),
    ("fill / next()", "keymill fill(1000)", "keymill next()", 0.02),
]
print("\n| goal | measured | bound |\n|---|---:|---:|")
result = {}
for name, one, other, bound in goals:
    if other in times:
        result[name] = times[one] / times[other]
        print(f"| {name} | {result[name]:.3f} | {bound} |")
started = start() * 1000
print(f"| import, open and first id on SQLite | {started:.1f} ms | 50 ms |")
if "--json" in sys.argv:
    print(json.dumps({"ns": times, "wall": wall, "goals": result, "start_ms": started}))
