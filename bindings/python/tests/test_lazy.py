"""The shared mill, and sources that are declared before it is open."""

import array
import asyncio
import copy
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading

import pytest

import keymill
from test_processes import APP, in_a_child, raw_fork, serve

declared = keymill.lazy("segment:orders", deadline="60s")


@pytest.fixture(autouse=True)
def unshared():
    yield
    keymill.use(None)


def run(program, tmp_path, config=None):
    """What a program prints in a process of its own, where no mill was shared."""
    environment = {**os.environ, "KEYMILL_CONFIG": config or f"sqlite:{tmp_path / 'default.db'}"}
    answer = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def test_a_source_that_was_declared_before_the_mill_finds_it_at_its_first_id(mill):
    keymill.use(mill)
    assert keymill.shared() is mill
    assert (declared(), declared.next(), next(declared)) == (1, 2, 3)
    assert mill.segment("orders", deadline="60s").next() == 4, "they are one source"


def test_every_verb_is_the_sources(mill):
    keymill.use(mill)
    orders, ids = keymill.lazy("segment:verbs"), array.array("Q", bytes(16))
    assert (orders.next(), orders.try_next(), orders.take(2)) == (1, 2, [3, 4])
    orders.fill(ids)
    assert ids.tolist() == [5, 6]
    assert [id for id, _ in zip(orders, range(2))] == [7, 8]
    assert (orders.next_text(), orders.take_text(1), orders.text_of(5)) == ("10", ["11"], "5")
    assert orders.parse(5) == {"number": 5} and orders.stats()["issued"] == 11
    assert orders.settings() == mill.segment("verbs").settings() and orders.source().next() == 12
    assert orders.handle().next() > 12

    async def later():
        first = [await orders.anext(), *await orders.take_async(2)]
        async for id in orders:
            return [*first, id]

    later = asyncio.run(later())
    assert later == sorted(set(later)) and later[0] > 12
    assert keymill.lazy("serial:t/c", date="'C'", number="000")() == "C001"


def test_business_ids_are_taken_for_a_key_and_refused_without_one(mill):
    keymill.use(mill)
    sales = keymill.lazy("business:order")
    ids = [sales("buyer-42"), sales.next("buyer-42"), *sales.take("buyer-42", 2), asyncio.run(sales.anext("buyer-42"))]
    assert [sales.parse(id)["gene"] for id in ids] == [56443] * 5 and len(set(ids)) == 5
    for verb in (sales, sales.next, lambda: next(sales), sales.try_next):
        with pytest.raises(keymill.ArgumentError, match="needs a key"):
            verb()
    for verb in (declared, declared.next):
        with pytest.raises(keymill.ArgumentError, match="takes no key"):
            verb(42)


def closed_verbs(source):
    yield from (source, source.next, source.try_next, lambda: source.take(1), lambda: next(source), lambda: asyncio.run(source.anext()))
    yield keymill.lazy("segment:new")


def test_ids_come_from_the_mill_that_was_shared_last_and_never_from_a_closed_one(mill):
    first = keymill.open("memory:")
    keymill.use(first)
    # The cursor is in the middle of a block, whose numbers would be at hand.
    assert [declared() for _ in range(300)] == [*range(1, 301)]
    keymill.use(mill)
    assert (declared.next(), declared(), next(declared)) == (1, 2, 3)
    keymill.use(first)
    assert declared.next() == 301, "the first is still open"
    first.close()
    for verb in closed_verbs(declared):
        with pytest.raises(keymill.ClosedError, match=r"the shared mill was closed; share an open one with keymill.use\(mill\)"):
            verb()
    keymill.use(mill)
    assert declared.next() == 4


def test_callers_do_not_see_that_a_mill_is_replaced_and_closed():
    source, stop, failed = keymill.lazy("segment:orders", block=2, deadline="60s"), threading.Event(), []
    keymill.use(keymill.open("memory:"))

    async def wait():
        while not stop.is_set():
            await source.anext()

    def work(verb):
        try:
            while not stop.is_set():
                verb()
        except BaseException as error:
            failed.append(error)

    verbs = (source, source.next, lambda: source.take(3), lambda: asyncio.run(wait()))
    threads = [threading.Thread(target=work, args=[verb]) for verb in verbs]
    for thread in threads:
        thread.start()
    for _ in range(200):
        before = keymill.shared()
        keymill.use(keymill.open("memory:"))
        before.close()
    stop.set()
    for thread in threads:
        thread.join()
    assert failed == []


CROWD = """
import threading, keymill
start, ids = threading.Barrier(64), []
def work():
    orders = keymill.lazy("segment:orders", deadline="60s")
    start.wait()
    ids.extend(orders.next() for _ in range(100))
threads = [threading.Thread(target=work) for _ in range(64)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(set(ids)))
"""


def test_sixty_four_first_callers_open_one_default_mill(tmp_path):
    # In memory, a second mill would give the same ids again.
    assert run(CROWD, tmp_path, "memory:") == "6400\n"


DEFAULT = """
import keymill
orders = keymill.lazy("segment:orders", deadline="60s")
ids = [orders.next()]
with keymill.open("memory:") as mill:
    keymill.use(mill)
    ids.append(orders.next())
keymill.use(None)
ids.append(orders.next())
keymill.shared().close()
try:
    orders.next()
except keymill.ClosedError as error:
    print(error)
keymill.use(None)
print(*ids, orders.next())
"""


def test_the_default_mill_serves_again_after_a_shared_one_and_after_its_close(tmp_path):
    told = "CLOSED: segment:orders?deadline=60s: the default mill was closed; share an open one with keymill.use(mill), or keymill.use(None) for the default mill"
    assert run(DEFAULT, tmp_path) == f"{told}\n1 1 2 3\n"


def test_the_default_mill_closes_at_exit_as_a_programs_own_does(tmp_path):
    program = "import keymill; print(keymill.lazy('segment:orders', deadline='60s').take(3))"
    assert [run(program, tmp_path) for _ in range(2)] == ["[1, 2, 3]\n", "[4, 5, 6]\n"]


def test_a_default_mill_that_cannot_be_opened_is_told_with_the_spec_and_without_a_password(tmp_path, mill):
    program = "import keymill\ntry: keymill.lazy('segment:orders')()\nexcept keymill.ConfigError as error: print(error)"
    told = run(program, tmp_path, "mysql://app:hush@db:port/ids")
    assert told.startswith("INVALID_CONFIG: segment:orders: no mill is shared, and the default mill (KEYMILL_CONFIG=…) cannot be opened: ")
    assert "hush" not in told
    keymill.use(mill)
    with pytest.raises(keymill.ConfigError, match=r"segment:orders\?stpe=5: .*`stpe`"):
        keymill.lazy("segment:orders", stpe=5)()


def test_what_is_no_spec_and_no_mill_is_refused():
    for spec in (None, 5, b"segment:orders", "\ud800"):
        with pytest.raises(keymill.ArgumentError):
            keymill.lazy(spec)
    for mill in ("memory:", 5, keymill.Mill):
        with pytest.raises(keymill.ArgumentError, match="use takes a mill"):
            keymill.use(mill)


def test_it_is_pickled_copied_and_compared_as_its_spec(mill):
    fresh = pickle.dumps(keymill.lazy("segment:orders?deadline=60s"))
    keymill.use(mill)
    declared.next()
    assert pickle.dumps(declared) == fresh, "nothing of the mill travels"
    for other in (pickle.loads(fresh), copy.copy(declared), copy.deepcopy(declared), copy.deepcopy([declared])[0]):
        assert other == declared and hash(other) == hash(declared) and repr(other) == "keymill.lazy('segment:orders?deadline=60s')"
    assert pickle.loads(fresh).next() == 2
    assert declared != keymill.lazy("segment:orders") and declared != "segment:orders?deadline=60s"
    path, arguments, keywords = declared.deconstruct()
    assert path == "keymill.lazy" and keymill.lazy(*arguments, **keywords) == declared


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("fork", [os.fork, raw_fork])
@pytest.mark.parametrize("shares", [True, False])
def test_parent_and_children_share_no_id(tmp_path, fork, shares, monkeypatch):
    monkeypatch.setenv("KEYMILL_CONFIG", f"sqlite:{tmp_path / 'default.db'}")
    if shares:
        keymill.use(keymill.open(f"sqlite:{tmp_path / 'ids.db'}"))
    source, unused = keymill.lazy("segment:orders", deadline="60s"), keymill.lazy("segment:lines", deadline="60s")
    every, lines = [], []
    for _ in range(3):
        # The cursor is in the middle of a block when the child begins.
        every += [source() for _ in range(300)]
        answer = [int(id) for id in in_a_child(fork, lambda: [*(source() for _ in range(50)), *source.take(50), *unused.take(5)])]
        every += answer[:100]
        lines += answer[100:]
        every += source.take(10)
    lines += unused.take(5)
    assert len(set(every)) == len(every) == 3 * 410 and len(set(lines)) == len(lines) == 20
    keymill.shared().close()
    keymill.use(None)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_cannot_be_shared_with_a_child_is_refused_there(mill):
    keymill.use(mill)
    declared.next()

    def work():
        try:
            return [declared()]
        except keymill.ClosedError as error:
            keymill.use(keymill.open("memory:"))
            return [error.code, declared()]

    assert in_a_child(os.fork, work) == ["FORKED", "1"]
    assert declared.next() == 2


def take_many(source):
    return [*source.take(500), *(source() for _ in range(500))]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_pool_gets_the_source_by_pickling_and_makes_no_duplicates(tmp_path, method, monkeypatch):
    monkeypatch.setenv("KEYMILL_CONFIG", f"sqlite:{tmp_path / 'default.db'}")
    source = keymill.lazy("segment:orders", deadline="60s")
    mine = take_many(source)
    with multiprocessing.get_context(method).Pool(4) as pool:
        theirs = pool.map(take_many, [source] * 16)
    mine += take_many(source)
    every = [id for ids in (mine, *theirs) for id in ids]
    assert len(set(every)) == len(every) == 18 * 1000
    keymill.shared().close()
    keymill.use(None)


def taken_or_refused(source):
    try:
        return source()
    except keymill.ConfigError as error:
        return str(error)


def test_a_spawned_child_of_a_process_that_shares_a_mill_makes_no_other_store(mill, tmp_path, monkeypatch):
    monkeypatch.delenv("KEYMILL_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    spawn = multiprocessing.get_context("spawn")
    keymill.use(mill)
    with spawn.Pool(1) as pool:
        said = pool.apply(taken_or_refused, [declared])
    assert "segment:orders?deadline=60s: no mill is shared in this process, and the process that started it shares one" in str(said)
    assert not (tmp_path / "keymill.db").exists()
    with spawn.Pool(1, keymill_of_its_own, [f"sqlite:{tmp_path / 'child.db'}"]) as pool:
        assert pool.apply(taken_or_refused, [declared]) == 1
    keymill.use(None)
    with spawn.Pool(1) as pool:
        assert pool.apply(taken_or_refused, [declared]) == 1, "both have the default mill"
    assert (tmp_path / "keymill.db").exists()


def keymill_of_its_own(config):
    keymill.use(keymill.open(config))


def test_a_preloading_server_s_workers_make_no_duplicates(tmp_path):
    declared = 'keymill.use(keymill.open({config!r}))\norders = keymill.lazy("segment:orders", deadline="60s")'
    app = APP.replace('mill = keymill.open({config!r})\norders = mill.segment("orders", deadline="60s")', declared)
    assert "lazy" in app
    serve(tmp_path, app.format(config=f"sqlite:{tmp_path / 'ids.db'}"))


def test_sqlalchemy_calls_it_for_each_row(mill):
    sqlalchemy = pytest.importorskip("sqlalchemy")
    from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

    class Base(DeclarativeBase):
        pass

    class Order(Base):
        __tablename__ = "orders"
        id: Mapped[int] = mapped_column(sqlalchemy.BigInteger, primary_key=True, autoincrement=False, default=declared)
        no: Mapped[str] = mapped_column(default=keymill.lazy("serial:orders/no?date=&number=0000"))

    keymill.use(mill)
    engine, statements = sqlalchemy.create_engine("sqlite://"), []
    sqlalchemy.event.listen(engine, "before_cursor_execute", lambda *call: statements.append(call[2]))
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        orders = [Order() for _ in range(1000)]
        session.add_all([*orders, kept := Order(id=7_000_000)])
        session.commit()
        assert session.scalars(sqlalchemy.select(Order.id).order_by(Order.id)).all() == [*range(1, 1001), kept.id]
        assert session.get(Order, 1).no == "0001"
    engine.dispose()
    assert sum(statement.startswith("INSERT") for statement in statements) <= 2


MIGRATION = """
import django
from django.conf import settings
settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}})
django.setup()
from django.db import connection, models
from django.db.migrations.autodetector import MigrationAutodetector
from django.db.migrations.state import ModelState, ProjectState
from django.db.migrations.writer import MigrationWriter
import keymill

def state(spec):
    state = ProjectState()
    fields = [("id", models.BigIntegerField(primary_key=True, default=keymill.lazy(spec)))]
    state.add_model(ModelState("shop", "Order", fields))
    return state

before, after = state("segment:orders"), state("segment:orders")
print(len(MigrationAutodetector(before, after)._detect_changes()), len(MigrationAutodetector(before, state("segment:other"))._detect_changes()))
print(*MigrationWriter.serialize(keymill.lazy("segment:orders")))

class Order(models.Model):
    id = models.BigIntegerField(primary_key=True, default=keymill.lazy("segment:orders", deadline="60s"))
    class Meta:
        app_label = "shop"

with connection.schema_editor() as schema:
    schema.create_model(Order)
print(Order.objects.create().id, Order.objects.create().id)
"""


def test_django_writes_it_into_migrations_and_sees_no_change(tmp_path):
    pytest.importorskip("django")
    assert run(MIGRATION, tmp_path) == "0 1\nkeymill.lazy('segment:orders') {'import keymill'}\n1 2\n"
