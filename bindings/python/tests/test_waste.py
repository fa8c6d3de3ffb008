"""What is reserved and not used: the bound that docs/configuration.md states, and what processes that end lose."""

import subprocess
import sys

import pytest

import keymill

MIN_STEP = 1_000


@pytest.mark.parametrize("by_handle", [False, True])
@pytest.mark.parametrize(("rate", "each_ms", "ids"), [(1, 1_000, 1), (10, 100, 1), (1_000, 10, 10)])
def test_what_is_reserved_and_not_used_stays_under_the_bound(rate, each_ms, ids, by_handle):
    with keymill.open("memory:?clock=manual") as mill:
        source = mill.segment("orders", deadline="60s")
        taker = source.handle() if by_handle else source
        used = 0
        for _ in range(70_000 // each_ms):
            mill.advance_clock(each_ms)
            for _ in range(ids):
                taker.next()
            used += ids
            ahead = source.stats()["reserved"] - used
            assert ahead < rate * 30 * 6 // 5 + 2 * MIN_STEP, f"{ahead} ahead after {used}"


def burst(mill, by_handle):
    source = mill.segment("orders", deadline="60s")
    taker = source.handle() if by_handle else source
    for _ in range(300):
        taker.next()


@pytest.mark.parametrize("by_handle", [False, True])
def test_processes_that_take_300_ids_each_and_end_one_after_the_other_lose_none(sqlite, by_handle):
    for _ in range(20):
        with keymill.open(sqlite) as mill:
            burst(mill, by_handle)
    with keymill.open(sqlite) as mill:
        assert mill.segment("orders", deadline="60s").next() == 6_001


def test_a_mill_that_is_dropped_gives_back_what_its_cursors_have(sqlite):
    def process():
        mill = keymill.open(sqlite)
        return [mill.segment("orders", deadline="60s").next() for _ in range(3)]

    assert [process(), process()] == [[1, 2, 3], [4, 5, 6]]


DAEMON = """
import sys, threading
import keymill
mill = keymill.open(sys.argv[1])
orders = mill.segment("orders", deadline="60s")
began = threading.Event()
def background():
    orders.next()
    began.set()
    threading.Event().wait()
threading.Thread(target=background, daemon=True).start()
began.wait()
print(*orders.take(3))
"""


def test_a_mill_that_a_daemon_thread_keeps_is_closed_at_exit_too(sqlite, tmp_path):
    """The interpreter ends without those threads, whose frames keep their functions, and these their module."""
    run = lambda: subprocess.run([sys.executable, "-c", DAEMON, sqlite], capture_output=True, text=True, check=True).stdout
    assert run() == "2 3 4\n"
    assert not [file.name for file in tmp_path.iterdir() if file.name.endswith(("-wal", "-shm"))]
    # What the cursor's first block has left is lost.
    assert run() == "18 19 20\n"
