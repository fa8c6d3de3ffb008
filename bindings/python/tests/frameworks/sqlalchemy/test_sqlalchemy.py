"""Models of SQLAlchemy whose ids come from keymill: on SQLite, MariaDB and PostgreSQL, by drivers with threads and with asyncio."""

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    ForeignKey,
    Integer,
    MetaData,
    Numeric,
    String,
    Table,
    TypeDecorator,
    create_engine,
    event,
    insert,
    select,
)
from sqlalchemy.exc import StatementError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

import keymill
import keymill.sqlalchemy


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False, default=keymill.lazy("segment:orders", deadline="60s"))
    no: Mapped[str] = mapped_column(String(20), default=keymill.lazy("serial:orders/no", date="", number="00000000", deadline="60s"))
    code: Mapped[str] = mapped_column(
        String(30), default=keymill.lazy("segment:codes", text="crockford", prefix="ord_", deadline="60s").next_text
    )
    buyer: Mapped[str] = mapped_column(String(20), default="ann")
    lines: Mapped[list["Line"]] = relationship(back_populates="order", cascade="all, delete-orphan")


class Line(Base):
    __tablename__ = "lines"
    id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False, default=keymill.lazy("segment:lines", deadline="60s"))
    order_id: Mapped[int] = mapped_column(ForeignKey("orders.id"))
    order: Mapped[Order] = relationship(back_populates="lines")


@pytest.fixture
def engine(database):
    engine = create_engine(database.url())
    Base.metadata.create_all(engine)
    keymill.sqlalchemy.use(engine, Base.metadata)
    keymill.sqlalchemy.init(Base.metadata)
    yield engine
    engine.dispose()


def inserts(engine):
    statements = []
    event.listen(engine, "before_cursor_execute", lambda *call: statements.append(call[2]) if call[2].startswith("INSERT") else None)
    return statements


def test_the_ids_are_kept_in_the_engine_s_database(engine, database):
    assert keymill.shared().store.split("?")[0].split("/")[-1].startswith(engine.url.database.rpartition("/")[2])


def test_many_rows_are_one_insert_and_know_their_ids_before_it(engine):
    statements = inserts(engine)
    with Session(engine) as session:
        orders = [Order() for _ in range(1000)]
        session.add_all([*orders, kept := Order(id=7_000_000)])
        session.commit()
        ids = [order.id for order in orders]
        assert ids == list(range(ids[0], ids[0] + 1000)) and kept.id == 7_000_000
        assert len({order.no for order in orders}) == len({order.code for order in orders}) == 1000
    assert len(statements) <= 2


def test_a_graph_of_objects_is_saved(engine):
    with Session(engine) as session:
        session.add(order := Order(lines=[Line(), Line()]))
        session.commit()
        assert [line.order_id for line in order.lines] == [order.id] * 2
        session.merge(Order(id=order.id, no="x", code="y", buyer="bob"))
        session.commit()
        assert session.get(Order, order.id).buyer == "bob"


def test_core_s_insert_takes_an_id_a_row(engine):
    with engine.begin() as connection:
        one = connection.execute(insert(Order.__table__)).inserted_primary_key[0]
        connection.execute(insert(Order), [{"buyer": str(n)} for n in range(100)])
        connection.execute(insert(Order).values([{"buyer": "x"}, {"buyer": "y"}]))
        ids = connection.execute(select(Order.id)).scalars().all()
    assert one in ids and len(set(ids)) == len(ids) == 103


def test_rows_of_a_select_do_not_all_get_one_id(engine):
    with Session(engine) as session:
        with pytest.raises(keymill.ArgumentError, match="from_select gives all rows of `lines` one value of `id`"):
            session.execute(insert(Line).from_select(["order_id"], select(Order.id)))
        named = insert(Line).from_select(["id", "order_id"], select(Order.id, Order.id))
        assert session.execute(named).rowcount == 0


def test_what_is_never_saved_spends_no_number(engine):
    with Session(engine) as session:
        session.add(first := Order())
        session.commit()
        for _ in range(50):
            Order()
        session.add(second := Order())
        session.commit()
        assert second.id == first.id + 1


def test_an_id_of_a_key_s_gene(engine):
    sales = keymill.lazy("business:sales", deadline="60s")
    metadata = MetaData()
    table = Table(
        "sales",
        metadata,
        Column("id", BigInteger, primary_key=True, autoincrement=False, default=lambda context: sales(context.get_current_parameters()["buyer"])),
        Column("buyer", String(20)),
    )
    metadata.create_all(engine)
    keymill.shared().init("business:sales")
    with engine.begin() as connection:
        connection.execute(insert(table), [{"buyer": "buyer-42"} for _ in range(10)])
        ids = connection.execute(select(table.c.id)).scalars().all()
    assert {sales.parse(id)["gene"] for id in ids} == {56443}


def test_a_session_of_asyncio(database):
    async def work():
        engine = create_async_engine(database.url(True))
        keymill.sqlalchemy.use(engine, Base.metadata)
        await asyncio.to_thread(keymill.sqlalchemy.init, Base.metadata)
        async with engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
        async with AsyncSession(engine) as session:
            session.add_all([Order() for _ in range(1000)])
            await session.commit()
            ids = (await session.scalars(select(Order.id))).all()
        await engine.dispose()
        return ids

    ids = asyncio.run(work())
    assert len(set(ids)) == 1000


def test_the_loop_goes_on_while_a_session_waits_for_a_silent_store(tmp_path):
    """The store accepts and does not answer, until the test lets it."""
    import socket

    silent = socket.create_server(("127.0.0.1", 0))
    url = f"mysql://app:x@127.0.0.1:{silent.getsockname()[1]}/ids?tls=off"

    async def work():
        engine = create_async_engine("sqlite+aiosqlite://")
        keymill.sqlalchemy.use(engine, store=url)
        metadata = MetaData()
        table = Table("t", metadata, Column("id", BigInteger, primary_key=True, autoincrement=False, default=keymill.lazy("segment:silent", deadline="2s")))
        async with engine.begin() as connection:
            await connection.run_sync(metadata.create_all)
        turns = 0

        async def others():
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        async def insert_one():
            async with engine.begin() as connection:
                await connection.execute(insert(table))

        task = asyncio.create_task(others())
        with pytest.raises(StatementError) as refused:
            await asyncio.wait_for(insert_one(), 60)
        # A wait is cancelled at once, like any other of the loop.
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(insert_one(), 0.2)
        task.cancel()
        await engine.dispose()
        return turns, refused.value.orig.code

    turns, code = asyncio.run(work())
    keymill.shared().close()
    silent.close()
    # Without turns of its own in between, the loop would have had a handful.
    assert turns > 100 and code in ("DEADLINE", "STORE_UNAVAILABLE")


def test_alembic_s_autogenerate_stays_empty(engine):
    pytest.importorskip("alembic")
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    with Session(engine) as session:
        session.add(Order())
        session.commit()
    with engine.connect() as connection:
        differences = lambda **options: compare_metadata(MigrationContext.configure(connection, opts=options), Base.metadata)
        assert differences(include_name=keymill.sqlalchemy.include_name) == []
        dropped = {difference[1].name for difference in differences() if difference[0] == "remove_table"}
    # Without it the tables of keymill are dropped; on SQLite they lie in a file of their own.
    assert dropped == (set() if engine.dialect.name == "sqlite" else {"keymill_segment", "key_producer"})


def test_sqlmodel(engine):
    sqlmodel = pytest.importorskip("sqlmodel")

    class Hero(sqlmodel.SQLModel, table=True):
        __table_args__ = {"extend_existing": True}
        id: "int | None" = sqlmodel.Field(
            default=None, primary_key=True, sa_type=BigInteger, sa_column_kwargs={"default": keymill.lazy("segment:heroes", deadline="60s"), "autoincrement": False}
        )
        name: str

    Hero.__table__.create(engine)
    statements = inserts(engine)
    with sqlmodel.Session(engine) as session:
        heroes = [Hero(name=str(n)) for n in range(1000)]
        assert heroes[0].id is None
        session.add_all(heroes)
        session.commit()
        assert len({hero.id for hero in heroes}) == 1000
    assert len(statements) <= 2


TWO = """
import sys, keymill, keymill.sqlalchemy
from sqlalchemy import create_engine, insert
from test_sqlalchemy import Base, Order
# SQLite has one writer, for which the other one waits.
engine = create_engine(sys.argv[1], connect_args={"timeout": 120} if sys.argv[1].startswith("sqlite") else {})
keymill.sqlalchemy.use(engine, Base.metadata)
for _ in range(20):
    with engine.begin() as connection:
        connection.execute(insert(Order), [{} for _ in range(50)])
"""


def test_two_processes_at_once_make_no_duplicates(engine, database):
    run = [sys.executable, "-c", TWO, database.url()]
    environment = {**os.environ, "PYTHONPATH": os.path.dirname(__file__)}
    processes = [subprocess.Popen(run, env=environment, stderr=subprocess.PIPE) for _ in range(2)]
    for process in processes:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors.decode()
    with engine.connect() as connection:
        ids = connection.execute(select(Order.id)).scalars().all()
    assert len(set(ids)) == len(ids) == 2000


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_goes_on_with_other_ids(engine):
    with Session(engine) as session:
        session.add(Order())
        session.commit()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, ",".join(str(Order.__table__.c.id.default.arg(None)) for _ in range(100)).encode())
        keymill.shared().close()
        os._exit(0)
    os.close(writer)
    mine = [Order.__table__.c.id.default.arg(None) for _ in range(100)]
    with os.fdopen(reader) as answer:
        theirs = [int(id) for id in answer.read().split(",")]
    assert os.waitpid(child, 0)[1] == 0
    assert len({*mine, *theirs}) == 200


def test_use_follows_to_another_engine_and_leaves_no_mill_behind(tmp_path):
    engines = [create_engine(f"sqlite:///{tmp_path / name}") for name in ("a.db", "b.db")]
    first = keymill.sqlalchemy.use(engines[0])
    assert keymill.sqlalchemy.use(engines[0]) is first is keymill.shared()
    before = threading.active_count(), len(os.listdir("/proc/self/fd"))
    for turn in range(100):
        keymill.sqlalchemy.use(engines[(turn + 1) % 2])
        assert keymill.lazy("segment:orders", deadline="60s")() > 0
    assert first.closed and not keymill.shared().closed
    assert (threading.active_count(), len(os.listdir("/proc/self/fd"))) <= (before[0] + 1, before[1] + 12)


def url_of(engine):
    return keymill.sqlalchemy._configuration(engine)


def test_what_an_engine_is_opened_with_is_what_the_mill_is_opened_with():
    engine = create_engine("mysql+pymysql://app:old@db/shop", connect_args={"password": "new", "ssl": {"ca": "/ca.pem"}, "connect_timeout": 3})
    assert url_of(engine) == "mysql://app:new@db:3306/shop?tls=verify&ca=/ca.pem&connect_timeout=3s"
    engine = create_engine("postgresql+psycopg2://app@db/shop?sslmode=require")
    event.listen(engine, "do_connect", lambda dialect, record, args, parameters: parameters.update(password="token"))
    assert url_of(engine) == "postgres://app:token@db:5432/shop?tls=require"
    assert url_of(create_async_engine("postgresql+asyncpg://app@db/shop?ssl=require").sync_engine) == "postgres://app@db:5432/shop?tls=require"
    assert url_of(create_engine("sqlite://")) == url_of(create_engine("sqlite:///file:x?mode=memory&uri=true")) == "memory:"


def test_an_engine_that_does_not_say_where_it_leads_is_refused():
    import ssl

    context = ssl.create_default_context()
    for engine, words in [
        (create_engine("mysql+pymysql://app:hush@db/shop", connect_args={"ssl": context}), "ssl"),
        (create_engine("mysql+pymysql://app:hush@db/shop", creator=lambda: None), "creator="),
        (create_engine("mysql+pymysql://app:hush@db/shop", connect_args={"unix_socket": object()}), "unix_socket"),
    ]:
        with pytest.raises(keymill.ConfigError, match=words) as refused:
            keymill.sqlalchemy.use(engine)
        assert "hush" not in str(refused.value) and "app:***@db/shop" in str(refused.value)
    assert keymill.sqlalchemy.use(engine, store="memory:").store == "memory:"


def test_a_creator_of_the_program_s_is_not_called():
    called = []
    engine = create_engine("mysql+pymysql://app@db/shop", creator=lambda: called.append(1))
    with pytest.raises(keymill.ConfigError, match="creator="):
        keymill.sqlalchemy.use(engine)
    assert called == []


def test_no_message_has_a_password():
    for url in (
        "mysql+pymysql://app:hush@db/shop?password=hush",
        "mysql+pymysql://app@db/shop?passwd=hush",
        "postgresql+psycopg2://app@db/shop?password=hush&sslpassword=hush",
        "mssql+pyodbc://app:hush@db/shop?password=hush",
    ):
        for more in ({}, {"creator": lambda: None}, {"connect_args": {"ssl_ca": 5, "unknown": "hush"}}):
            try:
                keymill.sqlalchemy.use(create_engine(url, **more))
            except keymill.KeymillError as error:
                assert "hush" not in str(error), str(error)
            except ImportError:
                pass
            finally:
                keymill.use(None)


def test_columns_of_other_numbers_are_judged_too(tmp_path):
    class Wrapped(TypeDecorator):
        impl = Integer
        cache_ok = True

    engine = create_engine("mysql+pymysql://app@db/shop")
    for kind in (Wrapped, Numeric(5), Float):
        metadata = MetaData()
        Table("t", metadata, Column("id", kind, primary_key=True, autoincrement=False, default=keymill.lazy("snowflake:tx")))
        with pytest.raises(keymill.ConfigError, match=r"t\.id: .*cannot hold"):
            keymill.sqlalchemy.use(engine, metadata)


def test_wrong_columns_are_named_at_the_start(tmp_path):
    lazy, metadata = keymill.lazy, MetaData()
    Table(
        "t",
        metadata,
        Column("misspelt", BigInteger, default=lazy("segment:t?stepp=1")),
        Column("text_in_number", BigInteger, default=lazy("serial:t/c?number=000")),
        Column("number_in_text", String(20), default=lazy("segment:t")),
        Column("too_small", Integer, default=lazy("snowflake:t?worker=1")),
        Column("too_short", String(4), default=lazy("serial:t/d?number=00000000")),
        Column("no_key", BigInteger, default=lazy("business:t")),
        Column("right", BigInteger, default=lazy("snowflake:t?worker=1")),
        Column("small_and_right", Integer, default=lazy("segment:t")),
        Column("right_text", String(20), default=lazy("segment:t?text=crockford").next_text),
        Column("no_source", String(4), default=lambda: "text"),
    )
    engine = create_engine("mysql+pymysql://app@db/shop")
    with pytest.raises(keymill.ConfigError) as refused:
        keymill.sqlalchemy.use(engine, metadata)
    faults = str(refused.value).split("; t.")
    assert [fault.partition(":")[0] for fault in faults[1:]] == ["text_in_number", "number_in_text", "too_small", "too_short", "no_key"]
    assert "t.misspelt: unknown option `stepp`" in faults[0]
    # A column of SQLite holds what a BIGINT does.
    with pytest.raises(keymill.ConfigError) as refused:
        keymill.sqlalchemy.use(create_engine("sqlite://"), metadata)
    assert "too_small" not in str(refused.value)


def test_a_store_that_is_away_lets_the_program_start():
    engine = create_engine("mysql+pymysql://app@127.0.0.1:1/shop")
    keymill.sqlalchemy.use(engine, Base.metadata)
    with pytest.raises(keymill.KeymillError):
        keymill.lazy("segment:away", deadline="100ms")()
    keymill.shared().close()


@pytest.mark.parametrize("tool", ["mypy", "pyright"])
def test_types_are_strict(tool, tmp_path):
    pytest.importorskip(tool)
    module = next(folder for folder in Path(__file__).resolve().parents if folder.name == "tests").parent / "python/keymill/sqlalchemy.py"
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')
    command = {
        "mypy": ["-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache")],
        "pyright": ["-m", "pyright", "--project", str(tmp_path), "--pythonpath", sys.executable],
    }[tool]
    example = tmp_path / "example.py"
    example.write_text((Path(__file__).parent / "typed.py").read_text())
    answer = subprocess.run([sys.executable, *command, str(example), str(module)], capture_output=True, text=True, cwd=tmp_path)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    wrong = tmp_path / "wrong.py"
    wrong.write_text(example.read_text().replace("Base.metadata)", '"metadata")'))
    assert subprocess.run([sys.executable, *command, str(wrong)], capture_output=True, cwd=tmp_path).returncode != 0
