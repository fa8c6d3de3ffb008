from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache

from django.db import connections

import keymill
import keymill.django

SHARDS = ["s1", "s2"]                           # entries of DATABASES, by their names in the route table
here = ContextVar("here", default=None)


@lru_cache(None)
def shards():
    return keymill.Shards(
        keymill.django.mill().router("sales"),
        {name: lambda name=name: connections[name] for name in SHARDS},
        tables={"sales_sale": "id", "sales_delivery": "sale_id"},
    )


@contextmanager
def write(id):
    with shards().write(id) as connection, at(connection.alias):
        yield


@contextmanager
def read(id):
    with shards().read(id) as connection, at(connection.alias):
        yield


@contextmanager
def at(alias):
    before = here.set(alias)
    try:
        yield
    finally:
        here.reset(before)


class ShardRouter:                              # DATABASE_ROUTERS = ["sales.shards.ShardRouter"]
    def db_for_write(self, model, **hints):
        if model._meta.app_label != "sales":
            return None
        if here.get() is None:
            raise RuntimeError(f"{model._meta.label} is on a shard: use it inside sales.shards.write(id) or read(id)")
        return here.get()

    db_for_read = db_for_write

    def allow_migrate(self, db, app_label, **hints):
        return app_label == "sales" if db in SHARDS else None if app_label != "sales" else False
