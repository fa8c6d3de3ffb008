"""Business ids: keys in, ids that carry the key's gene out."""

import asyncio
import pickle
import threading

import pytest

import keymill
from test_input import HUGE, refused

GENE_OF_42, GENE_OF_BUYER_42 = 61763, 56443


def test_an_id_carries_the_gene_of_its_key(mill):
    orders = mill.business("order", counters=4)
    for key, gene in [(42, GENE_OF_42), ("buyer-42", GENE_OF_BUYER_42), (b"buyer-42", GENE_OF_BUYER_42)]:
        ids = [orders.next(key), *orders.take(key, 3), orders.next(key)]
        assert ids == sorted(set(ids))
        assert {orders.parse(id)["gene"] for id in ids} == {gene}
        assert {id >> 47 for id in ids} == {gene}
    assert orders.take("buyer-42", 0) == []


def test_every_verb_counts_the_same_counter(mill):
    orders = mill.business("order", step=10)
    numbers = [orders.parse(orders.next(7))["number"]]
    numbers += [orders.parse(id)["number"] for id in orders.take(7, 25)]

    async def later():
        return [await orders.anext(7), *await orders.take_async(7, 2)]

    numbers += [orders.parse(id)["number"] for id in asyncio.run(later())]
    while (id := orders.try_next(7)) is None:
        pass
    numbers.append(orders.parse(id)["number"])
    # One counter: another key goes on where this one was, by whatever name the source is asked for.
    numbers.append(orders.parse(mill.source("business:order?step=10").next("x"))["number"])
    assert numbers == list(range(1, 32))


def test_wide_ids_have_128_bits(mill):
    orders = mill.business("order", wide=True)
    id = orders.next("buyer-42")
    assert id == GENE_OF_BUYER_42 << 111 | 1
    assert orders.take("buyer-42", 2) == [id + 1, id + 2]
    assert asyncio.run(later(orders)) == id + 3
    parts = {"gene": GENE_OF_BUYER_42, "number": 1}
    assert orders.parse(id) == orders.parse(str(id)) == orders.parse(id.to_bytes(16, "big")) == parts
    # An int does not say its form: a number that fits both is refused, and the bytes say it.
    both = 61763 << 47 | 7
    for wrong in (both, str(both)):
        assert f"0x{both:032x}" in refused("INVALID_ARGUMENT", orders.parse, wrong)
    assert orders.parse(both.to_bytes(8, "big")) == {"gene": 61763, "number": 7}
    assert orders.parse(both.to_bytes(16, "big")) == {"gene": 0, "number": both}
    assert orders.parse(7) == {"gene": 0, "number": 7}


async def later(orders):
    return await orders.anext("buyer-42")


def test_the_bytes_of_an_id_parse(mill):
    orders = mill.business("order")
    id = orders.next(42)
    assert orders.parse(id.to_bytes(8, "big")) == orders.parse(id) == orders.parse(str(id))
    for wrong in (b"", bytes(7), bytes(9), bytes(17)):
        assert "ids have 8 bytes, or 16" in refused("INVALID_ARGUMENT", orders.parse, wrong)
    for wrong in (-1, 0, 2**63, 2**64, 2**127, 2**200, 1.5, None, "x", bytes(16)):
        refused("INVALID_ARGUMENT", orders.parse, wrong)


@pytest.mark.parametrize("key", [1.5, True, [], (), object(), -(2**63) - 1, 2**64, 10**30])
def test_a_key_of_another_type_or_size_is_refused(mill, key):
    orders = mill.business("order")
    for verb in (orders.next, orders.try_next, orders.anext):
        words = refused("INVALID_ARGUMENT", verb, key)
        assert "a key must be an int from -9223372036854775808 to 18446744073709551615, a str or bytes" in words
    refused("INVALID_ARGUMENT", orders.take, key, 3)


def test_no_key_is_refused_in_words(mill):
    orders = mill.business("order")
    for verb in (orders.next, orders.try_next, orders.anext):
        assert "none was given" in refused("INVALID_ARGUMENT", verb)
        assert "none was given" in refused("INVALID_ARGUMENT", verb, None)


def test_keys_at_the_ends(mill):
    orders = mill.business("order")
    for key in (-(2**63), -1, 0, 2**63 - 1, 2**63, 2**64 - 1, "", b"", "用户" * 100, "x" * 65536, bytes(65536)):
        assert orders.next(key) > 0
    # A negative key is its two's complement.
    assert orders.next(-1) >> 47 == orders.next(2**64 - 1) >> 47
    for key in ("x" * 65537, bytes(65537), "用" * 30000):
        assert "65536" in refused("INVALID_ARGUMENT", orders.next, key)
    assert "surrogates" in refused("INVALID_ARGUMENT", orders.next, "\ud800")


@pytest.mark.parametrize("count", [-1, 1.5, "3", None, *HUGE])
def test_a_wrong_count_is_refused(mill, count):
    orders = mill.business("order")
    refused("INVALID_ARGUMENT", orders.take, 42, count)
    refused("INVALID_ARGUMENT", orders.take_async, 42, count)


def test_counters_that_are_no_power_of_two_are_refused(mill):
    assert "power of two" in refused("INVALID_CONFIG", mill.business, "order", counters=3)


def test_a_store_that_is_down_is_an_error_with_a_code(tmp_path):
    with keymill.open("memory:?script=down:1000") as mill:
        orders = mill.business("order", deadline="200ms")
        for verb in (orders.next, lambda key: orders.take(key, 3), lambda key: asyncio.run(awaited(orders, key))):
            with pytest.raises((keymill.StoreError, keymill.DeadlineError)):
                verb(42)


async def awaited(orders, key):
    return await orders.anext(key)


def test_threads_share_a_counter_and_ids_are_unique(mill):
    orders = mill.business("order", counters=2)
    made = []

    def work():
        mine = [orders.next(key % 5) for key in range(2000)]
        mine += orders.take("x", 500)
        made.append(mine)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ids = [id for mine in made for id in mine]
    assert len(ids) == 4 * 2500 == len(set(ids))


def test_a_closed_mill_is_said(mill):
    orders = mill.business("order")
    orders.next(42)
    mill.close()
    for verb in (orders.next, orders.try_next):
        refused("CLOSED", verb, 42)
    refused("CLOSED", orders.take, 42, 3)


def test_what_it_is(mill):
    orders = mill.business("order", counters=16)
    assert orders.label == "business:order" and "business:order" in repr(orders)
    assert orders.settings()["counters"] == "16"
    orders.next(42)
    assert orders.stats()["issued"] == 1
    with pytest.raises(keymill.ArgumentError):
        pickle.dumps(orders)
