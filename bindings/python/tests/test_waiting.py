"""Waits: without the interpreter's lock, ended by signals, asleep in asyncio, leaving nothing locked."""

import asyncio
import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

import keymill
from conftest import DOWN


class Alarm(Exception):
    pass


@pytest.fixture
def alarm():
    """An exception out of the blue, after so many seconds."""

    def ring(*_):
        raise Alarm

    before = signal.signal(signal.SIGALRM, ring)
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def starved():
    """A source that nothing comes from, and that is waited for a long time."""
    with keymill.open(DOWN) as mill:
        yield mill.segment("orders", deadline="60s")


VERBS = {
    "next": lambda source: source.next(),
    "iteration": lambda source: next(iter(source)),
    "take": lambda source: source.take(10),
    "fill": lambda source: source.fill(memoryview(bytearray(80)).cast("Q")),
    "handle": lambda source: source.handle().next(),
}


@pytest.mark.parametrize("verb", VERBS)
def test_an_exception_in_a_wait_ends_it_and_leaves_nothing_locked(starved, alarm, verb):
    for _ in range(3):
        began = time.monotonic()
        with pytest.raises(Alarm):
            alarm(0.1)
            VERBS[verb](starved)
        assert time.monotonic() - began < 20
    # Every verb still answers.
    starved.stats()
    try:
        starved.try_next()
    except keymill.StoreError:
        pass


def test_an_exception_in_a_wait_for_a_serial_or_a_clock_ends_it(alarm):
    with keymill.open(DOWN) as mill:
        for source in (mill.serial("t", "c", deadline="60s"), mill.snowflake("tx", worker=1, deadline="60s")):
            for verb in (source.next, lambda: source.take(3)):
                with pytest.raises(Alarm):
                    alarm(0.1)
                    verb()


def test_ctrl_c_ends_a_wait():
    program = (
        "import keymill\n"
        f"orders = keymill.open({DOWN!r}).segment('orders', deadline='60s')\n"
        "try:\n"
        "    print('waiting', flush=True)\n"
        "    orders.next()\n"
        "except KeyboardInterrupt: print('interrupted', flush=True)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "waiting\n"
    time.sleep(0.1)
    child.send_signal(signal.SIGINT)
    assert child.communicate(timeout=60)[0] == "interrupted\n" and child.returncode == 0


def test_a_wait_lets_other_threads_run(starved):
    waiter = threading.Thread(target=lambda: pytest.raises(keymill.ClosedError, starved.next))
    waiter.start()
    began, turns = time.monotonic(), 0
    while time.monotonic() - began < 0.3 or turns <= 100:
        turns += 1
    # With the lock kept they would begin when the wait is over.
    assert waiter.is_alive()


def test_closing_ends_every_wait():
    mill = keymill.open(DOWN)
    source = mill.segment("orders", deadline="60s")
    errors = []

    def wait(verb):
        try:
            verb(source)
        except keymill.KeymillError as error:
            errors.append(error.code)

    threads = [threading.Thread(target=wait, args=(verb,)) for verb in VERBS.values()]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    mill.close()
    for thread in threads:
        thread.join(50)
    assert errors == ["CLOSED"] * len(VERBS)


def test_asyncio_is_never_blocked():
    async def run():
        with keymill.open(DOWN) as mill:
            source = mill.segment("orders", deadline="12s")
            waits = [asyncio.create_task(verb) for verb in (source.anext(), source.take_async(9))]
            longest, last = 0.0, time.monotonic()
            while not all(wait.done() for wait in waits):
                await asyncio.sleep(0.005)
                longest, last = max(longest, time.monotonic() - last), time.monotonic()
            codes = [wait.exception().code for wait in waits]
            return longest, codes

    longest, codes = asyncio.run(run())
    assert codes == ["STORE_UNAVAILABLE"] * 2
    # A busy machine wakes a thread late, but not by as much as the whole wait.
    assert longest < 9


def test_closing_ends_a_wait_in_asyncio():
    async def run():
        mill = keymill.open(DOWN)
        wait = asyncio.create_task(mill.segment("orders", deadline="60s").anext())
        await asyncio.sleep(0.1)
        mill.close()
        with pytest.raises(keymill.ClosedError):
            await asyncio.wait_for(wait, 30)

    asyncio.run(run())


def test_a_close_that_waits_for_a_silent_store_is_ended_by_an_exception(alarm):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        mill = keymill.open(f"mysql://app@127.0.0.1:{silent.getsockname()[1]}/ids?timeout=60s")
        assert mill.segment("orders").try_next() is None
        connection, _ = silent.accept()
        began = time.monotonic()
        with pytest.raises(Alarm):
            alarm(0.2)
            mill.close()
        assert time.monotonic() - began < 8
        assert mill.closed and connection.fileno() >= 0


EXIT = """
import sys
import keymill
mills = [keymill.open(url) for url in sys.argv[1:]]
sources = [mill.segment("orders") for mill in mills]
for source in sources[:-1]:
    assert source.try_next() is None
print(*sources[-1].take(3))
"""


def test_the_mills_that_are_open_at_exit_close_side_by_side(tmp_path):
    with socket.create_server(("127.0.0.1", 0), backlog=64) as silent:
        url = f"mysql://app@127.0.0.1:{silent.getsockname()[1]}/ids?timeout=60s"
        for ids in ("1 2 3", "4 5 6"):
            began = time.monotonic()
            # Six stores that never answer, and a store that takes back what was not used.
            program = [sys.executable, "-c", EXIT, *[url] * 6, f"sqlite:{tmp_path}/ids.db"]
            assert subprocess.run(program, capture_output=True, text=True, check=True).stdout == f"{ids}\n"
            assert time.monotonic() - began < 20, "one after the other they take a minute"


@pytest.fixture
def silent():
    """A mill whose store accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        mill = keymill.open(f"mysql://app@127.0.0.1:{server.getsockname()[1]}/ids?timeout=60s")
        yield mill
        # The keeper reads from it: without a socket the close need not wait.
        server.close()
        mill.close()


class Counting(asyncio.SelectorEventLoop):
    """A loop that counts its timers: each look at a source that waits has one."""

    timers = 0

    def call_later(self, *arguments, **named):
        self.timers += 1
        return super().call_later(*arguments, **named)


class WithoutReaders(Counting):
    """A loop that watches no descriptors, as the default one of Windows."""

    def add_reader(self, *_):
        raise NotImplementedError


def run_in(loop, coroutine):
    try:
        return loop.run_until_complete(coroutine)
    finally:
        loop.close()


def uv_loop():
    return pytest.importorskip("uvloop").new_event_loop()


LOOPS = {"selector": Counting, "without readers": WithoutReaders, "uvloop": uv_loop}


@pytest.mark.parametrize("kind", LOOPS)
def test_tasks_are_woken_by_the_keeper_on_every_loop(sqlite, kind):
    async def run():
        with keymill.open(sqlite) as mill:
            bank = mill.business("crowd", counters=4096, deadline="60s")
            orders = mill.segment("orders", deadline="60s", min_step=1, max_step=1)
            every = await asyncio.gather(*(bank.anext(key) for key in range(500)), *(orders.anext() for _ in range(20)))
            assert len(set(every[:500])) == 500 and sorted(every[500:]) == list(range(1, 21))

    run_in(LOOPS[kind](), run())


@pytest.mark.parametrize("kind", [Counting, WithoutReaders])
def test_tasks_that_wait_are_not_polled(silent, kind):
    loop = kind()

    async def run():
        orders, bank = silent.segment("orders", deadline="60s"), silent.business("crowd", counters=4096, deadline="60s")
        waits = [asyncio.ensure_future(verb) for key in range(100) for verb in (orders.anext(), bank.take_async(key, 3))]
        await asyncio.sleep(0.5)
        assert loop.timers == len(waits) + 1, "one deadline each, and the sleep"
        waiters = keymill._aio._waiters(loop)
        assert len(waiters.futures) == len(waits)
        for wait in waits:
            wait.cancel()
        done = await asyncio.gather(*waits, return_exceptions=True)
        assert all(isinstance(error, asyncio.CancelledError) for error in done) and not waiters.futures

    run_in(loop, run())


def test_a_deadline_ends_a_wait_of_a_task(silent):
    async def run():
        with pytest.raises(keymill.DeadlineError):
            await silent.segment("orders", deadline="300ms").anext()

    asyncio.run(run())


def test_a_loop_that_is_closed_while_tasks_wait_is_not_called_again(sqlite):
    mill = keymill.open(DOWN)
    orders = mill.segment("orders", deadline="60s")
    loop = asyncio.new_event_loop()

    async def begin():
        wait = asyncio.ensure_future(orders.anext())
        await asyncio.sleep(0.05)
        return wait

    wait = loop.run_until_complete(begin())
    wait._log_destroy_pending = False
    loop.close()
    # Its news come now.
    mill.close()
    coroutine = orders.anext()
    with pytest.raises(keymill.ClosedError):
        coroutine.send(None)

    async def again():
        with keymill.open(sqlite) as mill:
            return await mill.segment("orders", deadline="60s").anext()

    assert asyncio.run(again()) == 1


def test_loops_that_are_closed_while_tasks_wait_do_not_stay(starved):
    def descriptors():
        return len(os.listdir("/proc/self/fd"))

    async def begin():
        waits = [asyncio.ensure_future(starved.anext()) for _ in range(3)]
        await asyncio.sleep(0.01)
        return waits

    def close_one_that_waits():
        loop = asyncio.new_event_loop()
        for wait in loop.run_until_complete(begin()):
            wait._log_destroy_pending = False
        loop.close()
        gc.collect()

    close_one_that_waits()
    before = descriptors()
    for _ in range(20):
        close_one_that_waits()
    assert descriptors() <= before + 2


def test_waiting_without_a_loop_says_so(silent):
    coroutine = silent.segment("orders").anext()
    with pytest.raises(RuntimeError, match="no running event loop"):
        coroutine.send(None)


def test_asyncio_takes_from_every_kind(sqlite):
    async def run():
        with keymill.open(sqlite) as mill:
            orders = mill.segment("orders", deadline="60s")
            serial = mill.serial("t", "c", date="", number="000", deadline="60s")
            tx = mill.snowflake("tx", worker=1, deadline="60s")
            assert [await orders.anext(), orders.next(), await orders.take_async(3)] == [1, 2, [3, 4, 5]]
            assert [await serial.anext(), await serial.take_async(2)] == ["001", ["002", "003"]]
            assert await tx.anext() < (await tx.take_async(5))[0]
            seen = []
            async for id in orders:
                seen.append(id)
                if len(seen) == 2000:
                    return seen

    assert asyncio.run(run()) == list(range(6, 2006))


def test_many_tasks_share_one_order(mill):
    async def run():
        orders = mill.segment("orders")

        async def some():
            ids = []
            for _ in range(50):
                ids += [await orders.anext(), *await orders.take_async(7)]
            assert ids == sorted(ids)
            return ids

        every = [id for ids in await asyncio.gather(*(some() for _ in range(50))) for id in ids]
        assert sorted(every) == list(range(1, 20_001))

    asyncio.run(run())


def test_a_cancelled_wait_leaves_nothing_locked(sqlite):
    async def run():
        with keymill.open(DOWN) as mill:
            starved = mill.segment("orders", deadline="60s")
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(starved.take_async(5), 0.05)
        with keymill.open(sqlite) as mill:
            assert await mill.segment("orders", deadline="60s").anext() == 1

    asyncio.run(run())


SPLIT = """
import os, signal, sys, keymill
config, folder = sys.argv[1:]
child, before, waits = None, 0, False
def split(*_):
    global child
    # Only while the batch is incomplete: what is complete belongs to both.
    if child is None and waits and orders.stats()["issued"] == before:
        child = os.fork()
signal.signal(signal.SIGALRM, split)
orders = keymill.open(config).segment("orders", step=1000, max_step=1000, deadline="60s")
for turn in range(500):
    for _ in range(200):
        orders.next()   # the cursor is in the middle of a block, with which the batch begins
    before, waits = orders.stats()["issued"], True
    signal.setitimer(signal.ITIMER_REAL, 0.0001 + turn % 50 * 0.0002)
    ids = orders.take(20_000)
    waits = False
    if child is not None:
        break
else:
    sys.exit("the batch was never caught in its wait")
with open(os.path.join(folder, "parent" if child else "child"), "w") as file:
    file.write(" ".join(map(str, ids)))
if child:
    _, status = os.waitpid(child, 0)
    assert status == 0, status
"""


def test_a_fork_in_a_wait_shares_nothing(sqlite, tmp_path):
    """A handler forks while a batch waits: parent and child both complete it."""
    for _ in range(3):
        subprocess.run([sys.executable, "-W", "ignore", "-c", SPLIT, sqlite, tmp_path], check=True, timeout=300)
        parent, child = ((tmp_path / name).read_text().split() for name in ("parent", "child"))
        assert len(parent) == len(child) == 20_000 and not set(parent) & set(child)


def test_waiting_threads_do_not_keep_a_program_from_ending():
    program = (
        "import keymill, threading\n"
        f"orders = keymill.open({DOWN!r}).segment('orders', deadline='60s')\n"
        "threading.Thread(target=orders.next, daemon=True).start()\n"
    )
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", program], check=True, timeout=55)
    assert time.monotonic() - began < 50


def test_calls_that_waited_are_counted(tmp_path):
    with keymill.open(f"sqlite:{tmp_path}/ids.db") as mill:
        for verb in (lambda source: source.next(), lambda source: source.take(10)):
            source = mill.segment(f"cold{id(verb)}", deadline="60s")
            verb(source)
            assert source.stats()["waits"] == 1, "the first id of a source is waited for"
            verb(source)
            assert source.stats()["waits"] == 1
