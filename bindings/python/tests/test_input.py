"""Bad input: an exception with a code, and what to do; never a crash, never half a buffer."""

import array
import asyncio
import ctypes
import pickle
import re

import pytest

import keymill
import keymill._keymill
from conftest import NOWHERE

HUGE = (2**27 + 1, 2**31, 2**63 - 1, 2**63, 2**64, 10**30, 10**13)


def refused(code, verb, *args, **kwargs):
    with pytest.raises(keymill.KeymillError) as caught:
        verb(*args, **kwargs)
    assert caught.value.code == code, caught.value
    assert "panicked" not in str(caught.value) and "hush" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("count", [-1, 1.5, "3", None, [], b"3", *HUGE])
def test_a_wrong_count_is_refused(mill, count):
    orders = mill.segment("orders")
    refused("INVALID_ARGUMENT", orders.take, count)
    refused("INVALID_ARGUMENT", orders.take_async, count)
    assert orders.next() == 1


def test_a_wrong_count_is_also_what_python_calls_it(mill):
    for error in (ValueError, TypeError, keymill.ArgumentError):
        with pytest.raises(error):
            mill.segment("orders").take(-1)


@pytest.mark.parametrize("kind", [kind for kind in "QqLl" if array.array(kind).itemsize == 8])
def test_every_integer_of_eight_bytes_is_filled(mill, kind):
    ids = array.array(kind, [0]) * 1000
    mill.segment("orders").fill(ids)
    assert ids.tolist() == list(range(1, 1001))


@pytest.mark.parametrize("kind", ["d", "f", "i", "I", "H", "B", "b"])
def test_other_items_are_refused_and_stay_as_they_were(mill, kind):
    ids = array.array(kind, [0]) * 64
    assert "64-bit integers" in refused("INVALID_ARGUMENT", mill.segment("orders").fill, ids)
    assert ids == array.array(kind, [0]) * 64


@pytest.mark.parametrize(
    "buffer",
    [bytes(80), memoryview(array.array("Q", bytes(80))).toreadonly(), memoryview(array.array("Q", bytes(80)))[::2],
     memoryview(array.array("Q", bytes(80)))[::-1], bytearray(80), bytearray(81), [0] * 10, None, 5, "x",
     (ctypes.c_double * 4)(), (ctypes.c_uint32 * 4)()],
)
def test_a_buffer_that_does_not_serve_is_refused(mill, buffer):
    orders = mill.segment("orders")
    refused("INVALID_ARGUMENT", orders.fill, buffer)
    assert orders.next() == 1


def test_read_only_is_said(mill):
    words = refused("INVALID_ARGUMENT", mill.segment("orders").fill, memoryview(array.array("Q", [0])).toreadonly())
    assert "read-only" in words


def test_buffers_of_other_makers_are_filled(mill):
    orders = mill.segment("orders")
    raw = bytearray(81)
    # Eight bytes an item, at an odd address.
    shifted = memoryview(raw)[1:].cast("Q")
    orders.fill(shifted)
    assert shifted.tolist() == list(range(1, 11)) and raw[0] == 0
    ids = (ctypes.c_uint64 * 5)()
    orders.fill(ids)
    assert list(ids) == [11, 12, 13, 14, 15]
    square = memoryview(bytearray(32)).cast("B").cast("Q", [2, 2])
    orders.fill(square)
    assert square.tolist() == [[16, 17], [18, 19]]
    orders.fill(array.array("Q"))
    assert orders.next() == 20
    # An export that was kept would forbid to resize.
    shifted.release()
    raw.extend(b"x")


def test_numpy_is_filled(mill):
    numpy = pytest.importorskip("numpy")
    orders = mill.segment("orders")
    for kind in (numpy.uint64, numpy.int64):
        ids = numpy.zeros(100, kind)
        orders.fill(ids)
        assert (numpy.diff(ids.astype(numpy.int64)) == 1).all()
    for wrong in (numpy.zeros(9), numpy.zeros(9, numpy.int32), numpy.zeros(9, ">i8"), numpy.zeros(9, "O"),
                  numpy.zeros(9, "M8[s]"), numpy.zeros((4, 4), numpy.int64)[:, 1], numpy.zeros((4, 4), numpy.int64).T[1:]):
        before = wrong.copy()
        refused("INVALID_ARGUMENT", orders.fill, wrong)
        assert (wrong == before).all()
    fortran = numpy.zeros((4, 5), numpy.int64, order="F")
    refused("INVALID_ARGUMENT", orders.fill, fortran)
    assert orders.next() == 201


def test_a_buffer_is_filled_wholly_or_not_at_all():
    ids = array.array("Q", [7]) * 10
    with keymill.open(NOWHERE) as mill:
        refused("STORE_UNAVAILABLE", mill.segment("orders", deadline="2s").fill, ids)
    assert ids == array.array("Q", [7]) * 10


def test_a_snowflake_buffer_that_cannot_be_filled_in_time_stays_as_it_was(mill):
    ids = array.array("Q", [7]) * 100_000
    tx = mill.snowflake("tx", worker=1, layout="time:41@1ms,worker:10,seq:1", deadline="100ms")
    refused("DEADLINE", tx.fill, ids)
    assert set(ids) == {7}


def test_texts_do_not_go_into_a_buffer(mill):
    serial = mill.serial("t", "c", date="", number="000")
    assert "use take" in refused("INVALID_ARGUMENT", serial.fill, array.array("Q", [0]))
    assert serial.next() == "001"


@pytest.mark.parametrize("config", [5, None.__class__, b"memory:", ["memory:"], "memory:\ud800"])
def test_a_config_that_is_no_text_is_refused(config):
    refused("INVALID_ARGUMENT", keymill.open, config)


@pytest.mark.parametrize("config", ["nosuch:x", "sqlite:x?frk=error", "mysql://app:hush@", "file:/nowhere.toml", "memory:?fork=x"])
def test_a_wrong_config_is_refused(config):
    refused("INVALID_CONFIG", keymill.open, config)


def test_typos_are_told_what_is_valid(mill):
    words = refused("INVALID_CONFIG", mill.segment, "orders", stepp=5)
    assert "min_step" in words
    assert "segment" in refused("INVALID_CONFIG", mill.source, "segmnt:orders")
    for value in (object(), [1], b"5"):
        refused("INVALID_ARGUMENT", mill.segment, "orders", step=value)
    refused("INVALID_ARGUMENT", mill.segment, "orders", **{"step&x": 5})
    refused("INVALID_CONFIG", mill.segment, "orders", step=-5)
    refused("INVALID_CONFIG", mill.segment, "")
    refused("INVALID_CONFIG", mill.segment, "x" * 200)
    refused("INVALID_CONFIG", mill.segment, "a\x00b")
    refused("INVALID_ARGUMENT", mill.segment, 5)
    refused("INVALID_ARGUMENT", mill.segment, "\ud800")
    refused("INVALID_ARGUMENT", mill.segment, "orders", ttl="\ud800")


@pytest.mark.parametrize("id", [-1, 2**64, 1.5, None, b"1", "one", "", 0, 2**63])
def test_an_id_this_source_cannot_have_made_is_refused(mill, id):
    refused("INVALID_ARGUMENT", mill.segment("orders").parse, id)


def test_numbers_end_and_nothing_wraps(mill):
    orders = mill.segment("orders", start=2**63 - 3)
    assert [orders.next() for _ in range(3)] == [2**63 - 3, 2**63 - 2, 2**63 - 1]
    refused("EXHAUSTED", orders.next)
    refused("EXHAUSTED", orders.take, 1)
    serial = mill.serial("t", "c", date="", number="0")
    assert serial.take(9) == [str(n) for n in range(1, 10)]
    refused("NUMBER_OVERFLOW", serial.next)


def test_an_unreachable_store_is_told_within_the_deadline_without_its_password():
    with keymill.open(NOWHERE) as mill:
        assert "hush" not in repr(mill) + mill.store + mill.metrics() + str(mill.events())
        orders = mill.segment("orders", deadline="2s")
        words = refused("STORE_UNAVAILABLE", orders.next)
        assert "127.0.0.1:1" in words
        refused("STORE_UNAVAILABLE", lambda: asyncio.run(orders.take_async(2)))


def test_a_missing_table_says_what_to_run(mysql):
    with keymill.open(mysql) as mill:
        words = refused("STORE_REFUSED", mill.segment("orders", table="never_made").next)
        assert re.search("run `KEYMILL_CONFIG='mysql://USER:PASSWORD@[^']+' keymill init 'segment:orders[?]table=never_made'`", words)


def test_errors_carry_code_message_and_hint(mill):
    with pytest.raises(keymill.ConfigError) as caught:
        mill.source("segment")
    error = caught.value
    assert error.code == "INVALID_CONFIG" and str(error) == f"INVALID_CONFIG: {error.message}" and error.retry_after is None
    again = pickle.loads(pickle.dumps(keymill.StoreError("STORE_UNAVAILABLE", "down", 0.5)))
    assert (type(again), again.code, again.message, again.retry_after) == (keymill.StoreError, "STORE_UNAVAILABLE", "down", 0.5)


def test_every_code_has_a_class_of_this_package():
    codes = keymill.CODES
    assert codes["OK"] == 0 and codes["INTERNAL"] == 19 and len(set(codes.values())) == len(codes)
    assert all(re.fullmatch("[A-Z_]+", name) for name in codes)
    families = keymill._keymill.FAMILIES
    assert families.keys() == codes.keys()
    for family in set(families.values()):
        assert issubclass(getattr(keymill, family), keymill.KeymillError) and family in keymill.__all__


def test_what_is_printed_of_a_source_is_its_own_spec(mill):
    for name in ("orders", "a?step=7", "50%", "a/b"):
        source = mill.segment(name)
        for printed in (repr(source), repr(source.handle())):
            spec = printed.split()[1].rstrip(">")
            assert mill.source(spec).label == source.label == f"segment:{name}"
    assert mill.business("a?b").label == "business:a?b" and "business:a%3Fb>" in repr(mill.business("a?b"))
