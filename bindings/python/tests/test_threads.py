"""Threads: one order, no duplicates, closing under load, memory that comes back."""

import array
import gc
import os
import threading
import time

import keymill


def run(count, work):
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()


def test_ids_rise_over_all_threads(mill):
    """The thread with the baton takes: the order of taking is known, and the ids must follow it."""
    orders = mill.segment("orders")
    baton, taken = threading.Lock(), []
    buffer = array.array("Q", bytes(24))

    def work(number):
        stream = iter(orders)
        for turn in range(2000):
            with baton:
                kind = (turn + number) % 5
                if kind == 0:
                    taken.extend(orders.take(3))
                elif kind == 1:
                    taken.append(next(stream))
                elif kind == 2:
                    orders.fill(buffer)
                    taken.extend(buffer)
                elif kind == 3 and (id := orders.try_next()) is not None:
                    taken.append(id)
                else:
                    taken.append(orders.next())

    run(8, work)
    assert all(one < other for one, other in zip(taken, taken[1:]))


def test_threads_share_no_id(mill):
    for order in ("process", "thread"):
        orders = mill.segment(order, order=order)
        taken = [[] for _ in range(8)]

        def work(number):
            mine, stream, buffer = taken[number], iter(orders), array.array("Q", bytes(80))
            for turn in range(5000):
                mine.append(orders.next())
                mine.append(next(stream))
                if turn % 100 == 0:
                    mine.extend(orders.take(1000))
                    orders.fill(buffer)
                    mine.extend(buffer)

        run(8, work)
        assert all(mine == sorted(mine) for mine in taken)
        every = [id for mine in taken for id in mine]
        assert len(set(every)) == len(every) == 8 * (10_000 + 50 * 1010)


def test_closing_while_sixteen_threads_take(sqlite):
    for _ in range(5):
        mill = keymill.open(sqlite)
        orders, serial = mill.segment("orders", deadline="60s"), mill.serial("t", "c", number="000000000", deadline="60s")
        taken, codes = [[] for _ in range(16)], [None] * 16

        def work(number):
            mine, source = taken[number], serial if number % 4 == 3 else orders
            try:
                while True:
                    if number % 4 == 0:
                        mine.append(source.next())
                    elif number % 4 == 1:
                        mine.extend(source.take(100))
                    else:
                        mine.extend(id for id, _ in zip(source, range(100)))
            except keymill.KeymillError as error:
                codes[number] = error.code

        closer = threading.Timer(0.2, mill.close)
        closer.start()
        run(16, work)
        closer.join()
        assert codes == ["CLOSED"] * 16
        every = [id for mine in taken for id in mine]
        assert len(set(every)) == len(every)


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def threads():
    return len(os.listdir("/proc/self/task"))


def test_memory_of_short_lived_sources_comes_back(mill):
    def make(count):
        for _ in range(count):
            source = mill.segment("orders")
            source.next()
            next(iter(source))
            source.handle()

    make(10_000)
    gc.collect()
    before = resident()
    make(100_000)
    gc.collect()
    assert resident() - before < 4 << 20


def test_memory_and_threads_of_short_lived_mills_come_back():
    def make(count):
        for _ in range(count):
            keymill.open("memory:").segment("orders").take(10)

    make(200)
    before, running = resident(), threads()
    make(1000)
    assert resident() - before < 8 << 20
    give_up = time.monotonic() + 180
    while threads() > running and time.monotonic() < give_up:
        time.sleep(0.01)
    assert threads() <= running


def test_memory_of_batches_errors_and_waits_comes_back(mill):
    orders = mill.segment("orders")
    buffer = array.array("Q", bytes(800))

    def work(count):
        for _ in range(count):
            orders.take(100)
            orders.fill(buffer)
            for wrong in (lambda: orders.fill(b"12345678"), lambda: orders.take(-1), lambda: mill.source("nosuch:x")):
                try:
                    wrong()
                except keymill.KeymillError:
                    pass

    work(2000)
    gc.collect()
    before = resident()
    work(20_000)
    gc.collect()
    assert resident() - before < 4 << 20
