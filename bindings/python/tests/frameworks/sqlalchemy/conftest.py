"""A database for each test: SQLite in a file, or one of the servers that the environment names."""

import os
import uuid
from urllib.parse import urlsplit

import pytest
import sqlalchemy

import keymill
import keymill.sqlalchemy

SERVERS = {"mariadb": "KEYMILL_TEST_MYSQL", "postgres": "KEYMILL_TEST_POSTGRES"}
DRIVERS = {
    "sqlite": ("sqlite", "sqlite+aiosqlite"),
    "mariadb": ("mysql+pymysql", "mysql+aiomysql"),
    "postgres": ("postgresql+psycopg2", "postgresql+asyncpg"),
}


class Database:
    def __init__(self, name, at):
        self.name, self._at = name, at

    def url(self, is_async=False):
        return DRIVERS[self.name][is_async] + self._at


@pytest.fixture(params=["sqlite", "mariadb", "postgres"])
def database(request, tmp_path):
    if request.param == "sqlite":
        yield Database("sqlite", f":///{tmp_path / 'shop.db'}")
        return
    url = os.environ.get(SERVERS[request.param])
    if url is None:
        pytest.skip(f"{SERVERS[request.param]} is not set")
    at, name = urlsplit(url), f"shop_{uuid.uuid4().hex[:12]}"
    root = sqlalchemy.create_engine(DRIVERS[request.param][0] + url[url.index("://") :], isolation_level="AUTOCOMMIT")
    with root.connect() as connection:
        connection.execute(sqlalchemy.text(f"CREATE DATABASE {name}"))
    yield Database(request.param, f"://{at.netloc}/{name}")
    keymill.shared().close()
    force = " WITH (FORCE)" if request.param == "postgres" else ""
    with root.connect() as connection:
        connection.execute(sqlalchemy.text(f"DROP DATABASE {name}{force}"))
    root.dispose()


@pytest.fixture(autouse=True)
def unshared():
    yield
    keymill.use(None)
