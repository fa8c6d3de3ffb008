"""A SQLite file is keymill's own: Python's sqlite3 is a second SQLite library in the process."""

import multiprocessing
import sqlite3
import time

import pytest

import keymill

ROUNDS = 100


def test_a_file_that_sqlite3_has_open_is_refused_and_served_again(tmp_path):
    path = tmp_path / "ids.db"
    with keymill.open(f"sqlite:{path}") as mill:
        orders = mill.segment("orders", max_step=10, min_step=10, deadline="60s")
        ids = orders.take(5)
        beside = sqlite3.connect(path)
        beside.execute("SELECT * FROM keymill_segment").fetchall()
        with pytest.raises(keymill.KeymillError, match="name a file of keymill's own") as caught:
            until = time.monotonic() + 120
            while time.monotonic() < until:
                ids += orders.take(5)
        assert caught.value.code == "STORE_UNSAFE"
        with keymill.open(f"sqlite:{path}") as other, pytest.raises(keymill.KeymillError, match="STORE_UNSAFE"):
            other.segment("orders").next()
        beside.close()
        until = time.monotonic() + 120
        while True:
            try:
                ids += orders.take(5)
                break
            except keymill.KeymillError:
                assert time.monotonic() < until
        assert len(set(ids)) == len(ids)


def test_a_file_with_tables_of_the_program_is_refused(tmp_path):
    path = tmp_path / "app.db"
    with sqlite3.connect(path) as app:
        app.execute("CREATE TABLE customers (id INTEGER PRIMARY KEY)")
    app.close()
    with keymill.open(f"sqlite:{path}") as mill:
        with pytest.raises(keymill.KeymillError, match="table `customers` of another program") as caught:
            mill.segment("orders").next()
        assert caught.value.code == "STORE_REFUSED"
        with pytest.raises(keymill.KeymillError, match="customers"):
            mill.init("segment:orders")


def both(path, ids):
    """Ids from keymill, and rows by sqlite3 in the same file, in one process."""
    mill = keymill.open(f"sqlite:{path}?durability=warn&busy=5s")
    orders = mill.segment("orders", step=5, max_step=5, deadline="60s")
    taken = []
    for _ in range(ROUNDS):
        app = sqlite3.connect(path, timeout=60)
        with app:
            app.execute("INSERT INTO app (text) VALUES ('row')")
        taken += orders.take(5)
        app.close()
    mill.close()
    ids.put(taken)


def test_sqlite3_beside_keymill_costs_no_id_and_no_row_where_that_is_accepted(tmp_path):
    path = tmp_path / "ids.db"
    with keymill.open(f"sqlite:{path}?durability=warn") as mill:
        first = mill.segment("orders", step=5, max_step=5).take(5)
    with sqlite3.connect(path) as app:
        app.execute("CREATE TABLE app (id INTEGER PRIMARY KEY, text)")
    app.close()
    context = multiprocessing.get_context("spawn")
    ids = context.Queue()
    children = [context.Process(target=both, args=(path, ids)) for _ in range(3)]
    for child in children:
        child.start()
    taken = first + [id for _ in children for id in ids.get(timeout=300)]
    for child in children:
        child.join()
        assert child.exitcode == 0
    assert len(taken) == 5 + 3 * ROUNDS * 5
    assert len(set(taken)) == len(taken), "an id came twice"
    app = sqlite3.connect(path)
    assert app.execute("SELECT count(*) FROM app").fetchone() == (3 * ROUNDS,)
    assert app.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    app.close()
