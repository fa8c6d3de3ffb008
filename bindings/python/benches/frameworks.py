"""Rows a second of `bulk_create(10 000)` and `add_all(10 000)`: keymill beside the database's own numbers and beside UUIDs of version 7.

    pip install keymill Django SQLAlchemy uuid_utils PyMySQL psycopg2-binary cryptography
    SHOP_DATABASE=mysql://app:secret@127.0.0.1/shop python benches/frameworks.py          # or postgres://…, or the path of a SQLite file

The kinds take turns, and the median of seven runs is printed. Each run begins with an empty table."""

import os
import statistics
import sys
import time
from pathlib import Path

ROWS, RUNS = 10_000, 7
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests/frameworks/django"))
os.environ.setdefault("SHOP_DATABASE", "bench.sqlite3")
URL = os.environ["SHOP_DATABASE"]

import uuid_utils.compat  # noqa: E402
from django.conf import settings  # noqa: E402
from settings import _database  # noqa: E402

settings.configure(DATABASES={"default": _database(URL)}, INSTALLED_APPS=["keymill.django"], DEFAULT_AUTO_FIELD="django.db.models.BigAutoField")
import django  # noqa: E402

django.setup()
import sqlalchemy  # noqa: E402
from django.db import connection, models  # noqa: E402
from sqlalchemy.orm import DeclarativeBase, Session, mapped_column  # noqa: E402

import keymill  # noqa: E402
import keymill.django  # noqa: E402
import keymill.sqlalchemy  # noqa: E402


def of_django(key):
    class Row(models.Model):
        id = key
        buyer = models.IntegerField()

        class Meta:
            app_label = "bench"
            db_table = f"bench_{type(key).__name__.lower()}"

    with connection.schema_editor() as schema:
        schema.create_model(Row)
    return Row


class Base(DeclarativeBase):
    pass


def of_sqlalchemy(name, kind, **options):
    # SQLite numbers a column of this very type.
    plain = sqlalchemy.BigInteger().with_variant(sqlalchemy.Integer, "sqlite")
    column = mapped_column(kind or plain, primary_key=True, **options)
    return type(name, (Base,), {"__tablename__": f"bench_sa_{name}", "id": column, "buyer": mapped_column(sqlalchemy.Integer)})


def engine():
    if "://" not in URL:
        return sqlalchemy.create_engine(f"sqlite:///{URL}")
    drivers = {"mysql": "mysql+pymysql", "postgres": "postgresql+psycopg2"}
    scheme, rest = URL.split("://")
    return sqlalchemy.create_engine(f"{drivers[scheme]}://{rest}")


def bulk_create(model):
    model.objects.bulk_create([model(buyer=n) for n in range(ROWS)])


def add_all(engine, model):
    with Session(engine) as session:
        session.add_all([model(buyer=n) for n in range(ROWS)])
        session.commit()


def main():
    django_models = {
        "the database's own numbers": of_django(models.BigAutoField(primary_key=True)),
        "uuid7": of_django(models.UUIDField(primary_key=True, default=uuid_utils.compat.uuid7)),
        "keymill": of_django(keymill.django.KeymillAutoField(primary_key=True)),
    }
    sqlalchemy_models = {
        "the database's own numbers": of_sqlalchemy("own", None),
        "uuid7": of_sqlalchemy("uuid7", sqlalchemy.Uuid(), default=uuid_utils.compat.uuid7),
        "keymill": of_sqlalchemy("keymill", sqlalchemy.BigInteger, autoincrement=False, default=keymill.lazy("segment:bench_sa")),
    }
    at = engine()
    Base.metadata.create_all(at)
    keymill.django.mill().init("segment:bench_keymillautofield")
    keymill.sqlalchemy.use(at, Base.metadata)
    keymill.sqlalchemy.init(Base.metadata)
    took = {}
    for _ in range(RUNS + 1):
        for name, model in django_models.items():
            model.objects.all().delete()
            started = time.perf_counter()
            bulk_create(model)
            took.setdefault(("bulk_create", name), []).append(time.perf_counter() - started)
        for name, model in sqlalchemy_models.items():
            with at.begin() as connection_of_rows:
                connection_of_rows.execute(sqlalchemy.delete(model))
            started = time.perf_counter()
            add_all(at, model)
            took.setdefault(("add_all", name), []).append(time.perf_counter() - started)
    for (what, name), seconds in took.items():
        # The first run warms up.
        print(f"{what:12} {name:28} {ROWS / statistics.median(seconds[1:]):10,.0f} rows a second")
    with connection.schema_editor() as schema:
        for model in django_models.values():
            schema.delete_model(model)
    Base.metadata.drop_all(at)


main()
