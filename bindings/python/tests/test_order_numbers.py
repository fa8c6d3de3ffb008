"""Order numbers: what ids are called outside."""

import copy
import pickle

import pytest

import keymill

SECRET = bytes(range(32))
ID = 7943646055239778305
SEALED = bytes.fromhex("dc7b01f1c8d4fe953d9eb31ef9339b6b")


@pytest.fixture
def numbers():
    return keymill.OrderNumbers.from_keys({1: SECRET}, 1, "acme", "orders")


def refused(verb, *arguments):
    with pytest.raises(keymill.KeymillError) as raised:
        verb(*arguments)
    assert SECRET.hex()[:8] not in str(raised.value)
    return raised.value


def test_keys_come_from_a_private_file_the_environment_or_the_caller(numbers, tmp_path, monkeypatch):
    file = tmp_path / "keys.toml"
    assert refused(keymill.OrderNumbers.open, file).code == "INVALID_ARGUMENT"
    file.write_text(f'seal_with = 1\n[key]\n1 = "{SECRET.hex()}"\n')
    file.chmod(0o600)
    for opened in (
        keymill.OrderNumbers.open(file, "acme", "orders"),
        keymill.OrderNumbers.open(str(file), table="orders", tenant="acme"),
        numbers,
    ):
        assert (opened.seal(ID), opened.version) == (SEALED, 1)
    assert keymill.OrderNumbers.open(file).seal(ID) != SEALED
    monkeypatch.delenv("KEYMILL_ORDER_KEYS", raising=False)
    assert refused(keymill.OrderNumbers.from_env).code == "INVALID_CONFIG"
    file.chmod(0o644)
    error = refused(keymill.OrderNumbers.open, file)
    assert error.code == "INVALID_CONFIG" and "chmod 600" in str(error)


def test_a_forged_number_is_an_argument_error_of_its_own_code(numbers):
    error = refused(numbers.unseal, SEALED[:15] + b"\0")
    assert isinstance(error, keymill.ArgumentError) and error.code == "FORGED"
    assert refused(numbers.unseal_all, [SEALED, SEALED[:15] + b"\0"]).code == "FORGED"


def test_drivers_bytes_of_each_type_are_read(numbers):
    for order_no in (SEALED, bytearray(SEALED), memoryview(SEALED)):
        assert numbers.unseal(order_no) == ID
    assert numbers.unseal_all([SEALED, bytearray(SEALED), memoryview(SEALED)]) == [ID] * 3
    assert numbers.unseal_all(iter([SEALED])) == [ID]


def test_a_large_batch_is_what_one_by_one_gives(numbers):
    ids = [id << 40 for id in range(2500)]
    assert numbers.seal_all(ids) == [numbers.seal(id) for id in ids]
    assert numbers.unseal_all(numbers.seal_all(ids)) == numbers.unseal8_all(numbers.seal8_all(ids)) == ids


@pytest.mark.parametrize("id", [None, "5", -1, 2**63, 2**64, 1.0, b"12345678"])
def test_what_is_no_id_is_refused(numbers, id):
    for verb in (numbers.seal, numbers.seal8, numbers.seal_text, numbers.seal8_text):
        assert refused(verb, id).code == "INVALID_ARGUMENT"
    assert refused(numbers.seal_all, [1, id]).code == "INVALID_ARGUMENT"
    assert refused(numbers.seal8_all, [1, id]).code == "INVALID_ARGUMENT"
    assert refused(numbers.seal_wide, id).code == "INVALID_ARGUMENT"


@pytest.mark.parametrize("order_no", [None, "5", 5, 1.0, b"", b"12345678", SEALED + b"0", SEALED[:2] + b"\0" + SEALED[3:]])
def test_what_is_no_order_number_is_refused(numbers, order_no):
    for verb in (numbers.unseal, numbers.unseal_wide):
        assert refused(verb, order_no).code == "INVALID_ARGUMENT"
    assert refused(numbers.unseal_all, [SEALED, order_no]).code == "INVALID_ARGUMENT"


def test_arguments_of_other_types_are_refused(numbers):
    from_keys = keymill.OrderNumbers.from_keys
    for keys, seal_with in [
        ({}, 1),
        (None, 1),
        ([SECRET], 1),
        ({1: SECRET}, 2),
        ({1: SECRET}, 0),
        ({1: SECRET}, 256),
        ({1: SECRET}, "1"),
        ({0: SECRET}, 0),
        ({"1": SECRET}, 1),
        ({1: SECRET.hex()}, 1),
        ({1: SECRET[:31]}, 1),
    ]:
        assert refused(from_keys, keys, seal_with).code == "INVALID_ARGUMENT"
    for name in ("\x1f", "x" * 129, 5, b"acme", "\ud800"):
        assert refused(from_keys, {1: SECRET}, 1, name, "").code == "INVALID_ARGUMENT"
        assert refused(from_keys, {1: SECRET}, 1, "", name).code == "INVALID_ARGUMENT"
    for value in (None, 5, b"6WFC0Z3J6MZTAKV7NK3VWK76VB", "\ud800", ""):
        assert refused(numbers.unseal_text, value).code == "INVALID_ARGUMENT"
        assert refused(numbers.unseal8_text, value).code == "INVALID_ARGUMENT"
    for value in (None, 5):
        assert refused(numbers.seal_all, value).code == "INVALID_ARGUMENT"
    for value in (None, "5", 2**63, -1):
        assert refused(numbers.unseal8, value).code == "INVALID_ARGUMENT"
    for version in (0, 2, 256, None, "1"):
        assert refused(numbers.with_version, version).code == "INVALID_ARGUMENT"


def test_a_router_reads_the_gene_without_a_key(numbers):
    router = keymill.Router.from_text('version = 7\n[[range]]\nupper = 65535\nshard = "s1"\n')
    for order_no in (SEALED, bytearray(SEALED), numbers.seal8(ID), numbers.seal_text(ID), numbers.seal8_text(ID)):
        assert router.route_order_no(order_no).gene == 56443
    for order_no in (None, 1.5, "", b"", -1, 2**63, "\ud800"):
        assert refused(router.route_order_no, order_no).code == "INVALID_ARGUMENT"


def test_keys_are_neither_shown_nor_copied(numbers):
    assert repr(numbers) == "<keymill.OrderNumbers version 1>"
    for verb in (copy.copy, pickle.dumps):
        assert refused(verb, numbers).code == "INVALID_ARGUMENT"
