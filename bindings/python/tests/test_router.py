"""Genes and routers."""

import subprocess
import sys
import time

import pytest

import keymill

TABLE = 'version = {version}\n[[range]]\nupper = 65535\nshard = "s{version}"\n'
MOVING = TABLE + 'to = "new"\npercent = 25\n'


def table(version, text=TABLE):
    return text.format(version=version)


def code_of(verb, *arguments):
    with pytest.raises(keymill.KeymillError) as raised:
        verb(*arguments)
    return raised.value.code


@pytest.mark.parametrize("key", [None, 1.5, True, [], 2**64, -(2**63) - 1, "k" * 65537, "\ud800"])
def test_what_is_no_key_is_refused(key):
    router = keymill.Router.from_text(table(1))
    assert code_of(keymill.gene, key) == "INVALID_ARGUMENT"
    assert code_of(router.route_key, key) == "INVALID_ARGUMENT"


@pytest.mark.parametrize("id", [None, "5", -1, 2**63, 2**64, b"1234567", b"", 1.0])
def test_what_is_no_id_is_refused(id):
    assert code_of(keymill.Router.from_text(table(1)).route, id) == "INVALID_ARGUMENT"


@pytest.mark.parametrize("id", [-1, 2**127, 2**128, 2**63, "5", None])
def test_what_is_no_wide_id_is_refused(id):
    assert code_of(keymill.Router.from_text(table(1)).route_wide, id) == "INVALID_ARGUMENT"


def test_ids_as_ints_and_as_bytes_find_the_shard_of_their_key():
    router = keymill.Router.from_text(table(3))
    key = router.route_key("buyer-42")
    assert (key.gene, key.shard, key.read, key.write, key.also, key.version) == (56443, "s3", "s3", "s3", None, 3)
    narrow, wide = key.gene << 47 | 9, key.gene << 111 | 9
    for route in (
        router.route(narrow),
        router.route(narrow.to_bytes(8, "big")),
        router.route(wide.to_bytes(16, "big")),
        router.route_wide(wide),
    ):
        assert repr(route) == repr(key)


def test_a_bad_table_is_refused_and_the_old_one_stays():
    router = keymill.Router.from_text(table(3))
    for text in ("", "version = 4", table(2), table(3).replace("s3", "x")):
        assert code_of(router.load, text) == "INVALID_CONFIG"
        assert (router.version, router.route(1).shard, router.age) == (3, "s3", None)
    assert (router.load(table(3)), router.load(table(4))) == (False, True)


def test_a_file_is_read(tmp_path):
    file = tmp_path / "routes.toml"
    assert code_of(keymill.Router.open, file) == "INVALID_ARGUMENT"
    file.write_text(table(5))
    assert keymill.Router.open(file).version == keymill.Router.open(str(file)).version == 5


def test_a_mill_follows_the_table_in_its_store(tmp_path):
    store, file = f"sqlite:{tmp_path / 'ids.db'}?durability=warn", tmp_path / "routes.toml"

    def put(text):
        file.write_text(text)
        words = [sys.executable, "-m", "keymill", "--mill", store, "route", "put", "orders", str(file), "--yes"]
        subprocess.run(words, check=True)

    put(table(1, MOVING))
    with keymill.open(store) as mill:
        assert code_of(mill.router, "none") == "STORE_REFUSED"
        router = mill.router("orders")
        assert (router.route_key(42).also, router.route_key(42).mirror) == ("new", "new") and router.age is not None
        put(table(2))
        deadline = time.monotonic() + 60
        while router.version < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert router.route_key(42).shard == "s2"
        assert 'keymill_router_version{router="orders"} 2' in mill.metrics()
    assert router.route(1).shard == "s2"


def test_the_bytes_of_a_text_are_the_same_key():
    router = keymill.Router.from_text(table(1))
    assert keymill.gene(b"buyer-42") == keymill.gene("buyer-42")
    assert router.route_key(b"buyer-42").shard == router.route_key("buyer-42").shard
