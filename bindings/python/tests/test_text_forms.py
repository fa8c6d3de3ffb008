"""Ids as text. What the texts are is in tests/vectors; here Python itself reads them."""

import asyncio
import random

import keymill
import pytest

BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


@pytest.fixture
def mill():
    with keymill.open("memory:") as mill:
        yield mill


def of_base62(text):
    number = 0
    for c in text:
        number = number * 62 + BASE62.index(c)
    return number


def ids():
    chosen = random.Random(25)
    return sorted({1, 2**53, 2**63 - 1, *(chosen.getrandbits(1 + n % 63) or 1 for n in range(2000))})


def test_texts_are_read_by_others_and_have_the_order_of_their_numbers(mill):
    for form, read in ("base36", lambda text: int(text, 36)), ("base62", of_base62):
        orders = mill.segment("orders", text=form)
        texts = [orders.text_of(id) for id in ids()]
        assert [read(text) for text in texts] == ids()
        assert texts == sorted(texts)
        assert [orders.parse(text)["number"] for text in texts] == ids()


def test_every_verb_writes_the_form_and_a_number_stays_one(mill):
    for order in ("process", "thread"):
        orders = mill.segment(order, order=order, text="base62", prefix="o_")
        assert orders.next_text() == "o_00000000001"
        assert orders.take_text(2) == ["o_00000000002", "o_00000000003"]
        assert (orders.next(), orders.take(2)) == (4, [5, 6])
        assert orders.text_of(asyncio.run(orders.anext())) == "o_00000000007"
        assert orders.parse("o_00000000007") == orders.parse(7)
    sparse = mill.source("segment:sparse?scheme=tiny_id_info&delta=2&remainder=1&text=base36")
    assert [sparse.next_text(), *sparse.take_text(2)] == ["0000000000001", "0000000000003", "0000000000005"]


def test_a_serial_has_its_texts_by_these_verbs_too(mill):
    serial = mill.serial("cust", "id", date="'C'", number="000")
    assert [serial.next_text(), *serial.take_text(2), serial.next()] == ["C001", "C002", "C003", "C004"]
    with pytest.raises(keymill.ArgumentError, match="has a date"):
        serial.text_of(1)


def test_a_number_of_thirteen_digits_is_a_number_and_its_text_is_the_form(mill):
    for source in mill.segment("orders", text="crockford"), mill.business("order", text="crockford"):
        assert source.parse(10**12)["number"] == 10**12
    assert mill.segment("orders", text="crockford").parse("1000000000000") == {"number": 2**60}


def test_ids_for_keys_have_texts(mill):
    orders = mill.business("order", text="base36", prefix="ord_")
    text = orders.next_text("buyer-42")
    id = int(text.removeprefix("ord_") if hasattr(text, "removeprefix") else text[4:], 36)
    assert orders.parse(text) == orders.parse(id) == orders.parse(id.to_bytes(8, "big")) == {"gene": 56443, "number": 1}
    assert orders.text_of(id) == text
    assert [orders.parse(text)["number"] for text in orders.take_text("buyer-42", 2)] == [2, 3]


@pytest.mark.parametrize("id", [-1, 2**64, 1.5, "1", None])
def test_what_is_no_id_has_no_text(mill, id):
    for source in mill.segment("orders", text="crockford"), mill.business("order", text="crockford"):
        with pytest.raises(keymill.ArgumentError):
            source.text_of(id)
