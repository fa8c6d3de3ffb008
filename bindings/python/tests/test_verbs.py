"""The verbs of mills, sources and handles."""

import array
import asyncio
import copy
import datetime
import pickle
import sys

import pytest

import keymill


def test_ids_rise_over_all_verbs(mill):
    orders = mill.segment("orders")
    ids = [orders.next(), next(orders), *orders.take(3), orders.next(), next(iter(orders)), *orders.take(0)]
    assert ids == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("order", ["process", "thread"])
def test_every_third_number_comes_by_every_verb(mill, order):
    orders = mill.segment("orders", scheme="tiny_id_info", delta=3, remainder=2, order=order)
    ids = [orders.next() for _ in range(300)] + [next(orders), *orders.take(1500), orders.try_next()]
    through = iter(orders)
    ids += [next(through) for _ in range(300)]
    filled = array.array("Q", bytes(8 * 1000))
    orders.fill(filled)
    mine = orders.handle()
    ids += [*filled, *(mine.next() for _ in range(300)), next(iter(mine))]

    async def waited():
        return [await orders.anext(), *await orders.take_async(300)]

    ids += asyncio.run(waited())
    assert ids == [2 + 3 * n for n in range(len(ids))]
    assert orders.parse(ids[-1]) == {"number": ids[-1]}
    with pytest.raises(keymill.KeymillError, match="divided by 3 it leaves 1"):
        orders.parse(ids[-1] + 2)


def test_asking_twice_gives_one_rising_order_of_one_source(mill):
    one, two = mill.segment("orders"), mill.source("segment:orders")
    ids = []
    for _ in range(2000):
        ids += [one.next(), two.next(), *one.take(3), next(two)]
    assert ids == sorted(ids) and len(set(ids)) == len(ids)


def test_a_batch_takes_what_lies_before_it_first(mill):
    orders = mill.segment("orders")
    ids = [orders.next() for _ in range(300)]
    for count in (1, 700, 1024, 5000, 3):
        ids += orders.take(count)
        ids.append(orders.next())
    assert ids == list(range(1, len(ids) + 1))


def test_a_program_that_takes_little_loses_nothing_at_close(sqlite):
    for first in (1, 6, 11):
        with keymill.open(sqlite) as mill:
            orders = mill.segment("orders", deadline="60s")
            assert [orders.next() for _ in range(5)] == list(range(first, first + 5))


def test_a_batch_that_cannot_be_completed_costs_no_number():
    mill = keymill.open("memory:?script=ack:1,down:1000")
    orders = mill.segment("orders", step=1500, max_step=1500, deadline="2s")
    # In the middle of a block.
    ids = [orders.next() for _ in range(200)]
    for batch in (lambda: orders.take(5000), lambda: orders.fill(array.array("Q", bytes(40_000)))):
        with pytest.raises((keymill.StoreError, keymill.DeadlineError)):
            batch()
        ids += [orders.next(), *orders.take(2)]
    assert ids == list(range(1, 207))


def test_any_option_is_a_keyword(mill):
    assert mill.segment("a", start=100, step=10).next() == 100
    assert mill.segment("b", min_step=10, buffer="5s", deadline=datetime.timedelta(seconds=1), order="thread").next() == 1
    assert mill.segment("c", start=None).next() == 1
    assert mill.serial("t", "c", date="", number="0000").next() == "0001"
    assert keymill.open("memory:").source("serial:t/c?date=&number=0000").take(2) == ["0001", "0002"]
    tx = mill.snowflake("tx", worker=7)
    assert tx.parse(tx.next())["worker"] == 7


def test_a_name_may_hold_what_a_spec_reserves(mill):
    source = mill.segment("a?b&c=d/e%f 号")
    assert source.next() == 1
    assert mill.source("segment:a%3Fb%26c%3Dd%2Fe%25f 号").next() == 2


def test_parse_gives_the_parts_back(mill):
    tx = mill.snowflake("tx", worker=5)
    parts = tx.parse(tx.next())
    assert parts["worker"] == 5 and parts["time"].tzinfo is datetime.timezone.utc and isinstance(parts["sequence"], int)
    assert abs(parts["time"] - datetime.datetime.now(datetime.timezone.utc)) < datetime.timedelta(minutes=5)
    assert mill.segment("o").parse(42) == mill.segment("o").parse("42") == {"number": 42}
    serial = mill.serial("t", "c", number="000000")
    assert serial.parse("20261120000001") == {"date": "20261120", "number": 1}


def test_try_next_is_none_until_the_store_answered():
    with keymill.open("mysql://app@127.0.0.1:1/ids?connect_timeout=1s") as mill:
        assert mill.segment("orders").try_next() is None


def test_handles_share_no_number_with_their_source_or_each_other(mill):
    orders = mill.segment("orders")
    takers = [orders.handle(), orders.handle(), orders]
    ids = [[taker.next() for _ in range(3000)] for taker in takers]
    ids.append([id for _, id in zip(range(2000), takers[0])])
    assert len({id for some in ids for id in some}) == 11000
    assert all(some == sorted(some) for some in ids)
    assert mill.serial("t", "c", date="", number="000").handle().next() == "001"
    assert mill.snowflake("tx", worker=1).handle().next() > 0


def test_serials_iterate_and_batch(mill):
    serial = mill.serial("t", "c", date="'C'", number="000000")
    texts = [serial.next(), next(serial), *serial.take(1000), next(iter(serial))]
    assert texts == [f"C{n:06}" for n in range(1, 1004)]


def test_a_long_text_is_whole(mill):
    serial = mill.serial("t", "c", date=f"'{'x' * 56}'", number="0" * 18)
    assert serial.next() == "x" * 56 + "0" * 17 + "1"


def test_figures_count_ids_that_were_handed_out(mill):
    orders = mill.segment("orders")
    for _ in range(500):
        orders.next()
    stats = orders.stats()
    assert stats["issued"] == 500 and stats["source"] == "segment:orders" == orders.label
    assert stats["reserved"] == stats["issued"] + stats["left"] + stats["lost"]
    assert "keymill_issued_total" in mill.metrics() and len(mill.stats()) == 1
    assert orders.settings()["scheme"] == "keymill"


def test_figures_say_how_long_ago_a_lease_was_renewed(mill):
    fixed, leased = mill.snowflake("fixed", worker=1), mill.snowflake("leased")
    fixed.next(), leased.next()
    assert fixed.stats()["lease_age_ms"] is None and 0 <= leased.stats()["lease_age_ms"] < 60_000


def test_figures_are_told_after_close_as_in_every_language(mill):
    orders = mill.segment("orders")
    orders.take(7)
    mill.close()
    assert orders.stats()["issued"] == 7 and mill.stats()[0]["source"] == "segment:orders"
    assert 'keymill_issued_total{source="segment:orders"} 7' in mill.metrics()


def test_a_batch_that_is_too_large_says_how_many_are_left(mill):
    serial = mill.serial("t", "few", date="", number="0", step=3, max_step=3)
    with pytest.raises(keymill.ExhaustedError, match="has 9 numbers left, and 10 more were asked for") as caught:
        serial.take(10)
    assert caught.value.retry_after is None
    assert len(serial.take(9)) == 9


def test_with_closes(sqlite):
    with keymill.open(sqlite) as mill:
        orders = mill.segment("orders")
        orders.next()
        assert not mill.closed
    mill.close()
    assert mill.closed
    for verb in (
        orders.next,
        orders.try_next,
        orders.handle().next,
        lambda: next(iter(orders)),
        lambda: orders.take(1),
        lambda: orders.fill(array.array("Q", [0])),
        lambda: asyncio.run(orders.take_async(1)),
        lambda: mill.segment("orders"),
    ):
        with pytest.raises(keymill.ClosedError) as caught:
            verb()
        assert caught.value.code == "CLOSED"


def test_a_source_keeps_its_mill_alive(sqlite):
    assert keymill.open(sqlite).segment("orders").take(3) == [1, 2, 3]


def test_the_default_mill_comes_from_the_environment(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KEYMILL_CONFIG", "memory:")
    assert keymill.open().store == "memory:"
    monkeypatch.setenv("KEYMILL_CONFIG", "")
    # On Windows an empty variable is none.
    for config in ([""],) if sys.platform == "win32" else ([], [""]):
        with pytest.raises(keymill.KeymillError, match="is empty"):
            keymill.open(*config)
    assert not (tmp_path / "keymill.db").exists()
    monkeypatch.delenv("KEYMILL_CONFIG")
    with keymill.open() as mill:
        assert mill.segment("orders").next() == 1
    assert (tmp_path / "keymill.db").exists()


def test_nothing_is_pickled_or_copied_and_the_reason_is_said(mill):
    for thing in (mill, mill.segment("orders"), mill.segment("orders").handle()):
        for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(keymill.ArgumentError, match="belong to one process"):
                attempt(thing)


def test_classes_cannot_be_made_by_hand(mill):
    for made in (keymill.Mill, keymill.Source, keymill.Handle):
        with pytest.raises(TypeError):
            made()
    loose = type(iter(mill.segment("orders")))
    with pytest.raises(TypeError):
        next(loose())


def test_init_says_what_it_creates(sqlite):
    with keymill.open(sqlite) as mill:
        assert any("keymill_segment" in line for line in mill.init("segment:orders", dry_run=True))
        mill.init()
