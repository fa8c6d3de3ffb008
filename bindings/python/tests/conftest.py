"""What the tests share."""

import os
import time
from pathlib import Path

import pytest

import keymill

ROOT = Path(__file__).resolve().parents[3]
# A store that fails each time: waiting for it ends with the deadline.
DOWN = "memory:?script=down:10000"
# No server is there: a new source does not wait for it.
NOWHERE = "mysql://app:hush@127.0.0.1:1/ids?connect_timeout=1s"


@pytest.fixture
def mill():
    with keymill.open("memory:") as mill:
        yield mill


@pytest.fixture
def sqlite(tmp_path):
    return f"sqlite:{tmp_path / 'ids.db'}"


@pytest.fixture(scope="session")
def mysql():
    """The CI's MariaDB: run the tests with `ci/steps/python` or `ci/servers/mariadb run`."""
    url = os.environ.get("KEYMILL_TEST_MYSQL")
    if not url:
        pytest.skip("KEYMILL_TEST_MYSQL names no server")
    return url


def wait_until(condition, seconds=120):
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up, "it never came to be"
        time.sleep(0.005)
