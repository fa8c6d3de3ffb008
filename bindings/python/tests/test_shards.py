"""Writes on two databases while a range moves from one to the other."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import uuid

import pytest

import keymill

mysql_connector = pytest.importorskip("mysql.connector")
mysqlclient = pytest.importorskip("MySQLdb")
pg8000 = pytest.importorskip("pg8000.dbapi")
pymysql = pytest.importorskip("pymysql")
psycopg = pytest.importorskip("psycopg")
psycopg2 = pytest.importorskip("psycopg2")
sqlalchemy = pytest.importorskip("sqlalchemy")

FIRST = 7 << 47
STAYING = 'version = {}\n[[range]]\nupper = 65535\nshard = "s1"\n'
MOVING = STAYING + 'to = "s2"\n'
TABLES = {"t_order": "order_id", "t_item": "item_of"}
ORDERS = "CREATE TABLE t_order (order_id BIGINT PRIMARY KEY, note VARCHAR(40), version BIGINT NOT NULL DEFAULT 0)"
ITEMS = (
    "CREATE TABLE t_item (item_of BIGINT REFERENCES t_order (order_id), n BIGINT, seat BIGINT UNIQUE,"
    " version BIGINT NOT NULL DEFAULT 0, PRIMARY KEY (item_of, n))"
)


class Database:
    """Two databases of a server, and how a driver gets a connection to each."""

    def __init__(self, connect):
        self.connect = connect
        for shard in (0, 1):
            self.ask(shard, ORDERS)
            self.ask(shard, ITEMS)

    def ask(self, shard, *statements):
        connection = self.connect(shard)()
        try:
            cursor = connection.cursor()
            for statement in statements:
                cursor.execute(statement)
            rows = cursor.fetchall() if cursor.description else []
            connection.commit()
            return [tuple(row.values()) if isinstance(row, dict) else tuple(row) for row in rows]
        finally:
            connection.close()

    def all(self, shard):
        return self.ask(shard, "SELECT order_id, note FROM t_order ORDER BY 1"), self.ask(
            shard, "SELECT item_of, n, seat FROM t_item ORDER BY 1, 2"
        )

    def shards(self, router, **options):
        return keymill.Shards(router, {"s1": self.connect(0), "s2": self.connect(1)}, tables=TABLES, **options)


def parts(url):
    user, rest = url.split("://")[1].split("@")
    name, password = user.split(":")
    address, database = rest.split("/")
    host, port = address.split(":")
    return {"host": host, "port": int(port), "user": name, "password": password, "database": database}


def mysql_like(connector, **options):
    url = os.environ.get("KEYMILL_TEST_MYSQL")
    if not url:
        pytest.skip("KEYMILL_TEST_MYSQL names no server")
    names = [f"shards_{uuid.uuid4().hex[:12]}" for _ in range(2)]
    root = pymysql.connect(**{**parts(url), "user": "root", "password": ""})
    with root.cursor() as cursor:
        for name in names:
            cursor.execute(f"CREATE DATABASE {name}")
            cursor.execute(f"GRANT ALL ON {name}.* TO keymill@'%'")
    root.close()
    return Database(lambda shard: lambda: connector(**{**parts(url), "database": names[shard]}, **options))


def postgres_like(connector, **options):
    url = os.environ.get("KEYMILL_TEST_POSTGRES")
    if not url:
        pytest.skip("KEYMILL_TEST_POSTGRES names no server")
    names = [f"shards_{uuid.uuid4().hex[:12]}" for _ in range(2)]
    place = parts(url)
    place["dbname"] = place.pop("database")
    with psycopg.connect(**place) as root:
        for name in names:
            root.execute(f"CREATE SCHEMA {name}")
    return Database(
        lambda shard: lambda: connector(**place, options=f"-c search_path={names[shard]}", **options)
    )


def of_sqlalchemy(connector):
    """The raw connections of an engine's pool."""
    engines = {}

    def connect(shard):
        if shard not in engines:
            engines[shard] = sqlalchemy.create_engine("postgresql+psycopg://", creator=base.connect(shard))
        return engines[shard].raw_connection

    base = postgres_like(connector)
    base.connect, connect_raw = base.connect, connect
    database = object.__new__(Database)
    database.connect = connect_raw
    return database


def autocommit(**place):
    connection = psycopg.connect(**place)
    connection.autocommit = True
    return connection


def connect_pg8000(dbname, options, **place):
    connection = pg8000.connect(database=dbname, **place)
    connection.cursor().execute("SET " + options.removeprefix("-c "))
    connection.commit()
    return connection


class PoolOfOne:
    """A pool that gives the same connection each time."""

    def __init__(self, kept):
        self.kept = kept

    def getconn(self):
        return self.kept

    def putconn(self, connection):
        assert connection is self.kept


DRIVERS = {
    "pymysql": lambda: mysql_like(pymysql.connect),
    "pymysql-dict": lambda: mysql_like(pymysql.connect, cursorclass=pymysql.cursors.DictCursor, autocommit=True),
    "mysqlclient": lambda: mysql_like(mysqlclient.connect),
    "mysql-connector": lambda: mysql_like(mysql_connector.connect),
    "psycopg": lambda: postgres_like(psycopg.connect),
    "psycopg-autocommit": lambda: postgres_like(autocommit),
    "psycopg2": lambda: postgres_like(psycopg2.connect),
    "pg8000": lambda: postgres_like(connect_pg8000),
    "sqlalchemy": lambda: of_sqlalchemy(psycopg.connect),
}


@pytest.fixture(params=DRIVERS)
def database(request):
    return DRIVERS[request.param]()


def router(table):
    return keymill.Router.from_text(table.format(1))


def insert(connection, id):
    cursor = connection.cursor()
    cursor.execute("INSERT INTO t_order (order_id, note) VALUES (%s, %s)", (id, "100 % café"))
    cursor.execute("INSERT INTO t_item (item_of, n, seat) VALUES (%s, 1, %s), (%s, 2, %s)", (id, id, id, -id))
    return id


def test_a_write_makes_the_rows_of_its_id_the_same_on_both_shards(database):
    shards = database.shards(router(MOVING))
    assert shards.run(FIRST, lambda connection: insert(connection, FIRST)) == FIRST
    assert database.all(0) == database.all(1) == ([(FIRST, "100 % café")], [(FIRST, 1, FIRST), (FIRST, 2, -FIRST)])
    # Two rows exchange a value that only one row may have.
    with shards.write(FIRST) as connection:
        cursor = connection.cursor()
        for n, seat in ((1, None), (2, FIRST), (1, -FIRST)):
            cursor.execute("UPDATE t_item SET seat = %s WHERE item_of = %s AND n = %s", (seat, FIRST, n))
    assert database.all(0) == database.all(1)
    with shards.write(FIRST) as connection:
        cursor = connection.cursor()
        cursor.execute("DELETE FROM t_item")
        cursor.execute("DELETE FROM t_order")
    assert database.all(0) == database.all(1) == ([], [])
    with shards.read(FIRST) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT COUNT(*) AS c FROM t_order")
        assert list(cursor.fetchall())


def test_a_work_that_raises_leaves_nothing_and_its_exception_comes_back(database):
    shards = database.shards(router(MOVING))

    class NoSeat(Exception):
        pass

    def fails(connection):
        insert(connection, FIRST)
        raise NoSeat("none is free")

    with pytest.raises(NoSeat, match="none is free"):
        shards.run(FIRST, fails)
    with pytest.raises(NoSeat), shards.write(FIRST) as connection:
        fails(connection)
    with pytest.raises(KeyboardInterrupt), shards.write(FIRST) as connection:
        insert(connection, FIRST)
        raise KeyboardInterrupt
    assert database.all(0) == database.all(1) == ([], [])
    assert shards.run(FIRST, lambda connection: insert(connection, FIRST)) == FIRST


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2", "psycopg-autocommit", "pg8000"])
@pytest.mark.parametrize("table", [STAYING, MOVING])
def test_a_work_that_hides_a_failed_statement_is_not_acknowledged(driver, table):
    database = DRIVERS[driver]()

    def work(connection):
        insert(connection, FIRST)
        try:
            insert(connection, FIRST)
        except Exception:
            # PostgreSQL takes no more of this transaction.
            pass

    shards = database.shards(router(table))
    with pytest.raises(keymill.ArgumentError, match="nothing was written"):
        shards.run(FIRST, work)
    with pytest.raises(keymill.ArgumentError), shards.write(FIRST) as connection:
        work(connection)
    assert database.all(0) == database.all(1) == ([], [])


@pytest.mark.parametrize("driver", ["mysql-connector", "mysqlclient"])
@pytest.mark.parametrize("table", [STAYING, MOVING], ids=["stays", "moves"])
def test_a_work_that_leaves_rows_unread_is_told_so_and_writes_nothing(driver, table):
    database = DRIVERS[driver]()
    shards, runs, cursors = database.shards(router(table)), [], []

    def work(connection):
        runs.append(1)
        insert(connection, FIRST)
        # mysqlclient reads all rows at once, except with this cursor.
        kind = (mysqlclient.cursors.SSCursor,) if driver == "mysqlclient" else ()
        cursors.append(connection.cursor(*kind))
        cursors[-1].execute("SELECT n FROM t_item")
        assert cursors[-1].fetchone()

    for way in (lambda: shards.run(FIRST, work), lambda: block(shards, work)):
        with pytest.raises(keymill.ArgumentError, match="left rows of a result unread on shard `s1`.*nothing was written"):
            way()
    assert len(runs) == 2
    assert database.all(0) == database.all(1) == ([], [])

    # The advice of the message.
    shards.run(FIRST, lambda connection: (work(connection), cursors[-1].fetchall()))
    assert len(database.all(0)[1]) == 2
    assert database.all(1) == (database.all(0) if table is MOVING else ([], []))


def sqlalchemy_shards(kind, table):
    """Two databases, and writes over an engine's connections: `connect` those of SQLAlchemy, `raw_connection` the driver's in the pool's wrapper."""
    database = DRIVERS["pymysql"]()
    engines = [sqlalchemy.create_engine("mysql+pymysql://", creator=database.connect(at), pool_size=1, max_overflow=0) for at in (0, 1)]
    sources = {f"s{at + 1}": getattr(engine, kind) for at, engine in enumerate(engines)}
    return database, keymill.Shards(router(table), sources, tables=TABLES, deadline=5)


def statements(connection):
    """An order by whichever kind of connection."""
    if hasattr(connection, "exec_driver_sql"):
        connection.exec_driver_sql("INSERT INTO t_order (order_id, note) VALUES (%s, %s)", (FIRST, "x"))
    else:
        connection.cursor().execute("INSERT INTO t_order (order_id, note) VALUES (%s, %s)", (FIRST, "x"))


def closed(connection):
    statements(connection)
    connection.close()


def in_a_block(connection):
    with connection:
        statements(connection)


def rolled_back(connection):
    statements(connection)
    connection.rollback()
    statements(connection)


def lost(connection):
    statements(connection)
    connection.invalidate()
    connection.rollback()
    statements(connection)


@pytest.mark.parametrize("table", [STAYING, MOVING], ids=["stays", "moves"])
@pytest.mark.parametrize(
    ("kind", "work"),
    [("connect", closed), ("connect", in_a_block), ("connect", rolled_back), ("connect", lost), ("raw_connection", closed)],
)
def test_a_work_that_ends_the_connection_of_sqlalchemy_is_not_acknowledged(kind, work, table):
    database, shards = sqlalchemy_shards(kind, table)
    for way in (shards.run, lambda id, work: block(shards, work)):
        with pytest.raises(keymill.ArgumentError, match="has ended its transaction on shard `s1`"):
            way(FIRST, work)
    # The engine's one connection serves the next write, and has nothing of the work.
    shards.run(FIRST + 1, lambda connection: None)
    assert database.all(0) == database.all(1) == ([], [])


@pytest.mark.parametrize("kind", ["connect", "raw_connection"])
@pytest.mark.parametrize(("driver", "level"), [("pymysql", "AUTOCOMMIT"), ("psycopg", None), ("psycopg", "AUTOCOMMIT"), ("psycopg2", "AUTOCOMMIT")])
def test_a_connection_that_the_work_gave_back_has_its_own_mode_again(kind, driver, level):
    database = DRIVERS[driver]()
    engine = sqlalchemy.create_engine(
        f"{'mysql' if driver == 'pymysql' else 'postgresql'}+{driver}://",
        creator=database.connect(0),
        pool_size=1,
        max_overflow=0,
        **{"isolation_level": level} if level else {},
    )
    shards = keymill.Shards(router(STAYING), {"s1": getattr(engine, kind)}, tables=TABLES, deadline=5)

    def others():
        with engine.connect() as connection:
            connection.exec_driver_sql("INSERT INTO t_order (order_id, note) VALUES (%s, %s)", (FIRST + 1, "other"))
        rows = database.all(0)[0]
        database.ask(0, "DELETE FROM t_order")
        return rows

    before = others()
    assert before == ([(FIRST + 1, "other")] if level else [])
    with pytest.raises(keymill.ArgumentError, match="has ended its transaction on shard `s1`"):
        shards.run(FIRST, closed)
    assert others() == before
    with shards.read(FIRST) as connection:
        statements(connection)
    assert others() == before


@pytest.mark.parametrize("way", ["raises", "reads"])
def test_a_connection_that_the_work_gave_back_is_left_to_those_who_have_it(way):
    database = DRIVERS["pymysql"]()
    engine = sqlalchemy.create_engine("mysql+pymysql://", creator=database.connect(0), pool_size=1, max_overflow=0)
    shards = keymill.Shards(router(STAYING), {"s1": engine.raw_connection}, tables=TABLES, deadline=5)
    others = []

    def work(connection):
        statements(connection)
        connection.close()
        # As another thread of the program: the pool gives it the same connection of the driver.
        others.append(engine.connect())
        others[0].exec_driver_sql("INSERT INTO t_order (order_id, note) VALUES (%s, %s)", (FIRST + 1, "other"))
        if way == "raises":
            raise ValueError

    if way == "raises":
        with pytest.raises(ValueError):
            shards.run(FIRST, work)
    else:
        with shards.read(FIRST) as connection:
            work(connection)
    others[0].commit()
    others[0].close()
    assert database.all(0)[0] == [(FIRST + 1, "other")]
    shards.run(FIRST, statements)


@pytest.mark.parametrize("table", [STAYING, MOVING], ids=["stays", "moves"])
def test_a_function_that_sets_something_on_a_connection_of_sqlalchemy_first_is_no_mistake(table):
    database = DRIVERS["pymysql"]()
    engines = [sqlalchemy.create_engine("mysql+pymysql://", creator=database.connect(at)) for at in (0, 1)]

    def connect(at):
        connection = engines[at].connect()
        connection.exec_driver_sql("SET SESSION innodb_lock_wait_timeout = 3")
        return connection

    shards = keymill.Shards(router(table), {"s1": lambda: connect(0), "s2": lambda: connect(1)}, tables=TABLES, deadline=5)
    shards.run(FIRST, statements)
    assert len(database.all(0)[0]) == 1
    assert database.all(1) == (database.all(0) if table is MOVING else ([], []))


def test_a_second_use_of_the_only_connection_is_refused_and_the_first_write_is_there():
    database = DRIVERS["pymysql"]()
    for kind in ("connect", "raw_connection"):
        kept = database.connect(0)()
        engine = sqlalchemy.create_engine("mysql+pymysql://", creator=lambda: kept)
        shards = keymill.Shards(router(STAYING), {"s1": getattr(engine, kind)}, tables=TABLES, deadline=5)
        with shards.write(FIRST) as connection:
            statements(connection)
            with pytest.raises(keymill.ConfigError, match="has not ended"), shards.read(FIRST):
                pass
        assert len(database.all(0)[0]) == 1
        database.ask(0, "DELETE FROM t_order")
    for pool in ("StaticPool", "SingletonThreadPool"):
        engine = sqlalchemy.create_engine("mysql+pymysql://", creator=database.connect(0), poolclass=getattr(sqlalchemy.pool, pool))
        shards = keymill.Shards(router(STAYING), {"s1": engine.connect}, tables=TABLES, deadline=5)
        with pytest.raises(keymill.ConfigError, match=f"shard `s1` has a `{pool}`"):
            shards.run(FIRST, statements)


class TimeLimit(Exception):
    pass


@pytest.mark.skipif(not hasattr(os, "fork"), reason="signals of POSIX")
def test_what_a_handler_of_a_signal_raises_ends_a_write_that_waits():
    database = DRIVERS["pymysql"]()
    shards = database.shards(router(MOVING + "percent = 100\npaused = true\n"))

    def limit(number, frame):
        raise TimeLimit

    before = signal.signal(signal.SIGALRM, limit)
    try:
        with pytest.raises(TimeLimit):
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            shards.run(FIRST, lambda connection: insert(connection, FIRST))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert database.all(0) == ([], [])


@pytest.mark.parametrize(
    ("settings", "table"),
    [
        ({}, STAYING),
        ({}, MOVING),
        ({"autocommit": True}, STAYING),
        ({"isolation_level": psycopg.IsolationLevel.READ_COMMITTED, "autocommit": True}, STAYING),
        ({"isolation_level": psycopg.IsolationLevel.READ_COMMITTED}, MOVING),
        ({"read_only": False, "deferrable": False}, STAYING),
    ],
)
def test_a_transaction_of_psycopg_inside_the_work_is_a_savepoint(settings, table):
    def connect(**place):
        connection = psycopg.connect(**place)
        for name, value in settings.items():
            setattr(connection, name, value)
        return connection

    database = postgres_like(connect)
    shards = database.shards(router(table))

    def work(connection):
        with connection.transaction():
            insert(connection, FIRST)
        raise ValueError

    with pytest.raises(ValueError):
        shards.run(FIRST, work)
    with pytest.raises(ValueError), shards.read(FIRST) as connection:
        work(connection)
    assert database.all(0) == database.all(1) == ([], [])


@pytest.mark.parametrize("driver", ["pymysql", "mysqlclient", "mysql-connector", "psycopg", "psycopg2", "pg8000"])
def test_a_work_that_loses_its_connection_raises_its_own_exception(driver):
    database = DRIVERS[driver]()
    shards = database.shards(router(MOVING))

    def work(connection):
        insert(connection, FIRST)
        connection.close()
        raise ValueError("of the work")

    with pytest.raises(ValueError, match="of the work"):
        shards.run(FIRST, work)
    for way in (shards.write, shards.read):
        with pytest.raises(ValueError, match="of the work"), way(FIRST) as connection:
            work(connection)
    assert database.all(0) == database.all(1) == ([], [])


@pytest.mark.parametrize("table", [STAYING, MOVING], ids=["stays", "moves"])
def test_a_statement_of_psycopg_that_has_not_ended_is_no_hang(table):
    database = DRIVERS["psycopg"]()
    shards = database.shards(router(table))
    kept = []

    def streams(connection):
        insert(connection, FIRST)
        kept.append(connection.cursor().stream("SELECT n FROM t_item, generate_series(1, 1000)"))
        next(kept[-1])

    def copies(connection):
        insert(connection, FIRST)
        kept.append(connection.cursor().copy("COPY t_item TO STDOUT"))
        kept[-1].__enter__()

    def streams_and_raises(connection):
        streams(connection)
        raise ValueError("of the work")

    for work in (streams, copies):
        with pytest.raises(keymill.ArgumentError, match="has left rows of a result unread"):
            shards.run(FIRST, work)
        with pytest.raises(keymill.ArgumentError, match="has left rows of a result unread"), shards.read(FIRST) as connection:
            work(connection)
    with pytest.raises(ValueError, match="of the work"):
        shards.run(FIRST, streams_and_raises)

    def leaves_a_block_open(connection):
        kept.append(connection.transaction())
        kept[-1].__enter__()
        insert(connection, FIRST)

    with pytest.raises(keymill.ArgumentError, match="has ended its transaction on shard `s1`"):
        shards.run(FIRST, leaves_a_block_open)
    assert database.all(0) == database.all(1) == ([], [])
    kept.clear()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes of POSIX")
@pytest.mark.parametrize("driver", ["pymysql", "psycopg"])
def test_a_process_that_a_work_forks_leaves_the_write_to_its_parent(driver):
    database = DRIVERS[driver]()
    shards = database.shards(router(MOVING))
    parent = os.getpid()

    def work(connection):
        insert(connection, FIRST)
        return os.fork()

    try:
        child = shards.run(FIRST, work)
    except keymill.ArgumentError as error:
        os._exit(7 if os.getpid() != parent and "leave it by `os._exit`" in str(error) else 1)
    finally:
        if os.getpid() != parent:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert len(database.all(0)[0]) == 1
    assert database.all(0) == database.all(1)


def test_a_work_whose_statements_would_run_after_the_commit_is_refused():
    database = DRIVERS["psycopg"]()
    shards = database.shards(router(STAYING))

    async def waits(connection):
        insert(connection, FIRST)

    def yields(connection):
        insert(connection, FIRST)
        yield

    for work in (waits, yields):
        with pytest.raises(keymill.ArgumentError, match="the work is a plain function; nothing was written"):
            shards.run(FIRST, work)

    async def connect():
        return None

    asynchronous = keymill.Shards(router(STAYING), {"s1": connect}, tables=TABLES)
    with pytest.raises(keymill.ConfigError, match="has an asynchronous connection"):
        asynchronous.run(FIRST, lambda connection: None)
    assert database.all(0) == ([], [])


def test_a_pool_of_mysql_connector_gets_no_connection_back_in_a_bad_state():
    database = DRIVERS["mysql-connector"]()
    pooling = pytest.importorskip("mysql.connector.pooling")
    place = {**parts(os.environ["KEYMILL_TEST_MYSQL"]), "database": database.ask(0, "SELECT DATABASE()")[0][0]}
    for resets in (True, False):
        pool = pooling.MySQLConnectionPool(pool_name=f"p{resets}", pool_size=1, pool_reset_session=resets, **place)
        shards = keymill.Shards(router(STAYING), {"s1": pool.get_connection}, tables=TABLES, deadline=5)

        def unread(connection):
            insert(connection, FIRST)
            connection.cursor().execute("SELECT n FROM t_item")

        with pytest.raises(keymill.ArgumentError, match="unread"):
            shards.run(FIRST, unread)
        with pytest.raises(KeyboardInterrupt), shards.write(FIRST) as connection:
            insert(connection, FIRST)
            raise KeyboardInterrupt
        shards.run(FIRST + 1, lambda connection: insert(connection, FIRST + 1))
        assert [row[0] for row in database.all(0)[0]] == [FIRST + 1]
        database.ask(0, "DELETE FROM t_item", "DELETE FROM t_order")


def test_a_connection_of_mysql_connector_that_timed_out_is_not_given_back():
    database = DRIVERS["mysql-connector"]()
    pooling = pytest.importorskip("mysql.connector.pooling")
    place = parts(os.environ["KEYMILL_TEST_MYSQL"])
    place["database"] = database.ask(0, "SELECT DATABASE()")[0][0]
    pool = pooling.MySQLConnectionPool(pool_name=f"timed{uuid.uuid4().hex[:8]}", pool_size=1, use_pure=True, read_timeout=4, **place)
    shards = keymill.Shards(router(STAYING), {"s1": pool.get_connection}, tables=TABLES)
    with pytest.raises(mysql_connector.Error):
        shards.run(FIRST, lambda connection: connection.cursor().execute("SELECT SLEEP(6)"))
    with shards.read(FIRST) as connection:
        for n in (1, 2):
            cursor = connection.cursor()
            cursor.execute(f"SELECT {n}")
            assert cursor.fetchall() == [(n,)]


def test_what_a_read_writes_is_rolled_back(database):
    shards = database.shards(router(MOVING))
    with shards.read(FIRST) as connection:
        insert(connection, FIRST)
    assert database.all(0) == database.all(1) == ([], [])


def block(shards, work):
    with shards.write(FIRST) as connection:
        work(connection)


def test_a_step_that_comes_in_between_runs_the_work_again_and_ends_a_block(database):
    table = router(MOVING)
    shards, runs = database.shards(table), []

    def work(connection):
        insert(connection, FIRST)
        runs.append(1)
        table.load('version = 2\n[[range]]\nupper = 65535\nshard = "s2"\n')

    shards.run(FIRST, work)
    assert len(runs) == 2
    assert database.all(0) == ([], [])
    assert len(database.all(1)[1]) == 2
    table = router(MOVING)
    with pytest.raises(keymill.DeadlineError) as raised, database.shards(table).write(FIRST + 1) as connection:
        insert(connection, FIRST + 1)
        table.load(STAYING.format(2))
    assert raised.value.code == "NOT_READY"
    assert database.all(0) == ([], [])


def test_writes_of_one_id_come_one_after_the_other(database):
    shards = database.shards(router(MOVING), deadline=120)
    shards.run(FIRST, lambda connection: insert(connection, FIRST))
    errors = []

    def count(connection):
        cursor = connection.cursor()
        cursor.execute("SELECT version AS v FROM t_order WHERE order_id = %s FOR UPDATE", (FIRST,))
        row = cursor.fetchone()
        version = row["v"] if isinstance(row, dict) else row[0]
        cursor.execute("UPDATE t_order SET version = %s WHERE order_id = %s", (version + 1, FIRST))

    def many():
        try:
            for _ in range(10):
                shards.run(FIRST, count)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=many) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert errors == []
    for shard in (0, 1):
        connection = database.connect(shard)()
        cursor = connection.cursor()
        cursor.execute("SELECT version AS v FROM t_order")
        row = cursor.fetchone()
        assert (row["v"] if isinstance(row, dict) else row[0]) == 40
        connection.close()


def test_without_a_move_one_connection_is_opened():
    database = DRIVERS["pymysql"]()
    opened = []

    def connect():
        opened.append(1)
        return database.connect(0)()

    shards = keymill.Shards(router(STAYING), {"s1": connect}, tables={"no_such_table": "id"})
    with shards.write(FIRST) as connection:
        insert(connection, FIRST)
    assert len(opened) == 1
    assert len(database.all(0)[0]) == 1


def test_a_connection_is_given_back_as_it_was():
    database = DRIVERS["pymysql-dict"]()
    kept = [database.connect(0)(), database.connect(1)()]
    for connection in kept:
        connection.query("SET time_zone = '+03:00', sql_mode = 'ANSI_QUOTES'")
    closes = []

    class Pool:
        def __init__(self, at):
            self.at = at

        def getconn(self):
            return kept[self.at]

        def putconn(self, connection):
            closes.append(connection)

    shards = keymill.Shards(router(MOVING), {"s1": Pool(0), "s2": Pool(1)}, tables=TABLES)
    shards.run(FIRST, lambda connection: insert(connection, FIRST))
    assert sorted(map(id, closes)) == sorted(map(id, kept))
    for connection in kept:
        assert connection.get_autocommit()
        cursor = connection.cursor()
        cursor.execute("SELECT @@time_zone AS z, @@sql_mode AS m")
        assert cursor.fetchone() == {"z": "+03:00", "m": "ANSI_QUOTES"}
        connection.close()


def test_what_cannot_be_is_named():
    database = DRIVERS["pymysql"]()
    moving = router(MOVING)

    def code(shards, says, id=FIRST):
        with pytest.raises(keymill.KeymillError) as raised:
            shards.run(id, lambda connection: None)
        assert says in str(raised.value), raised.value
        return raised.value.code

    one = database.connect(0)
    same = one()
    assert code(keymill.Shards(moving, {"s1": one}, tables=TABLES), "names shard `s2`") == "INVALID_CONFIG"
    assert (
        code(keymill.Shards(moving, {"s1": lambda: same, "s2": lambda: same}, tables=TABLES), "is given the connection of shard `s1`")
        == "INVALID_CONFIG"
    )
    assert code(keymill.Shards(moving, {"s1": one, "s2": one}, tables={"none": "id"}), "no table `none`") == "STORE_REFUSED"
    assert code(keymill.Shards(moving, {"s1": object}, tables=TABLES), "of no known driver") == "INVALID_CONFIG"
    shards = database.shards(moving)
    assert code(shards, "id must", id="5") == "INVALID_ARGUMENT"
    with pytest.raises(keymill.ConfigError, match="no table is named"):
        keymill.Shards(moving, {"s1": one}, tables={})
    with pytest.raises(keymill.ArgumentError, match="neither a function"):
        keymill.Shards(moving, {"s1": "mysql://"}, tables=TABLES)
    with pytest.raises(keymill.ArgumentError, match="deadline"):
        database.shards(moving, deadline=-1)
    with pytest.raises(keymill.ArgumentError, match="inside another one"):
        shards.run(FIRST, lambda connection: shards.run(FIRST + 1, lambda connection: None))
    paused = MOVING.format(1) + "percent = 100\npaused = true\n"
    shards = database.shards(keymill.Router.from_text(paused), deadline=0.2)
    assert code(shards, "writes of this range wait") == "NOT_READY"


def test_a_session_of_sqlalchemy_writes_to_both_shards():
    from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

    class Base(DeclarativeBase):
        pass

    class Order(Base):
        __tablename__ = "t_order"
        order_id: Mapped[int] = mapped_column(sqlalchemy.BigInteger, primary_key=True)
        note: Mapped[str]
        version: Mapped[int] = mapped_column(sqlalchemy.BigInteger, default=0)

    database = DRIVERS["psycopg"]()
    engines = [sqlalchemy.create_engine("postgresql+psycopg://", creator=database.connect(at)) for at in (0, 1)]
    shards = keymill.Shards(router(MOVING), {"s1": engines[0].connect, "s2": engines[1].connect}, tables=TABLES)
    with shards.write(FIRST) as connection, Session(bind=connection) as session:
        session.add(Order(order_id=FIRST, note="by a session"))
        # It joins the transaction, and does not end it.
        session.commit()
    assert database.all(0) == database.all(1) == ([(FIRST, "by a session")], [])

    def change(connection):
        with Session(bind=connection) as session:
            session.get(Order, FIRST).note = "changed"
            session.flush()
            raise ValueError

    with pytest.raises(ValueError):
        shards.run(FIRST, change)
    assert database.all(0) == database.all(1) == ([(FIRST, "by a session")], [])
    with shards.read(FIRST) as connection, Session(bind=connection) as session:
        assert session.get(Order, FIRST).note == "by a session"
    assert [engine.pool.checkedout() for engine in engines] == [0, 0]


@pytest.mark.parametrize("table", [STAYING, MOVING], ids=["stays", "moves"])
@pytest.mark.parametrize("kind", ["mysql", "postgresql"])
def test_models_of_django_are_written_to_both_shards(kind, table):
    database = DRIVERS["pymysql" if kind == "mysql" else "psycopg"]()
    place = parts(os.environ["KEYMILL_TEST_MYSQL" if kind == "mysql" else "KEYMILL_TEST_POSTGRES"])
    databases = []
    for at in (0, 1):
        entry = {
            "ENGINE": f"django.db.backends.{kind}",
            "HOST": place["host"],
            "PORT": place["port"],
            "USER": place["user"],
            "PASSWORD": place["password"],
            "NAME": place["database"],
        }
        if kind == "mysql":
            entry["NAME"] = database.ask(at, "SELECT DATABASE()")[0][0]
        else:
            entry["OPTIONS"] = {"options": "-c search_path=" + database.ask(at, "SHOW search_path")[0][0]}
        databases.append(entry)
    order = {"kind": kind, "databases": databases, "table": table.format(1), "tables": TABLES, "first": FIRST}
    program = os.path.join(os.path.dirname(__file__), "django_writes.py")
    done = subprocess.run(
        [sys.executable, program, json.dumps(order)], timeout=120, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "all of it\n"), done.stderr


@pytest.mark.parametrize("driver", ["pymysql", "psycopg", "psycopg2"])
def test_a_connection_that_a_write_has_is_not_given_to_a_read(driver):
    database = DRIVERS[driver]()
    kept = database.connect(0)()
    shards = keymill.Shards(router(STAYING), {"s1": PoolOfOne(kept)}, tables=TABLES)

    def work(connection):
        insert(connection, FIRST)
        with shards.read(FIRST + 1):
            pass

    with pytest.raises(keymill.ConfigError, match="another write or read has not ended"):
        shards.run(FIRST, work)
    assert database.all(0) == ([], [])
    assert shards.run(FIRST, lambda connection: insert(connection, FIRST)) == FIRST
    with shards.read(FIRST), pytest.raises(keymill.ConfigError, match="another write or read has not ended"), shards.read(FIRST):
        pass
    kept.close()


def test_a_connection_is_free_as_soon_as_its_pool_has_it():
    database = DRIVERS["psycopg"]()
    kept = database.connect(0)()
    answers = []

    class Pool:
        def getconn(self):
            return kept

        def putconn(self, connection):
            if not answers:
                answers.append(None)
                # Another thread gets it at once.
                other = threading.Thread(target=lambda: answers.append(shards.run(FIRST + 1, lambda connection: insert(connection, FIRST + 1))))
                other.start()
                other.join()

    shards = keymill.Shards(router(STAYING), {"s1": Pool()}, tables=TABLES)
    assert shards.run(FIRST, lambda connection: insert(connection, FIRST)) == FIRST
    assert answers == [None, FIRST + 1]
    assert [id for id, _ in database.all(0)[0]] == [FIRST, FIRST + 1]
    kept.close()


def test_a_work_that_closes_a_connection_whose_pool_takes_it_back_is_not_acknowledged():
    database = DRIVERS["psycopg"]()
    backs = []

    class Pool:
        """As psycopg_pool does it."""

        close_returns = True

        def getconn(self):
            connection = database.connect(0)()
            connection._pool = self
            return connection

        def putconn(self, connection):
            assert connection._pool is self
            connection._pool = None
            backs.append("closed" if connection.closed else connection.info.transaction_status.name)
            connection.close()

    def work(connection):
        insert(connection, FIRST)
        connection.close()

    for source in (Pool(), Pool().getconn):
        shards = keymill.Shards(router(STAYING), {"s1": source}, tables=TABLES)
        with pytest.raises(keymill.ArgumentError, match="has ended its transaction on shard `s1`"):
            shards.run(FIRST, work)
        with shards.read(FIRST):
            pass
    assert backs == ["closed", "IDLE", "closed", "IDLE"]
    assert database.all(0) == ([], [])


def test_a_connection_that_the_work_has_detached_is_none_of_its_pool():
    database = DRIVERS["psycopg"]()
    engine = sqlalchemy.create_engine(
        "postgresql+psycopg://", creator=database.connect(0), pool_size=1, max_overflow=0, isolation_level="AUTOCOMMIT"
    )
    shards = keymill.Shards(router(STAYING), {"s1": engine.connect}, tables=TABLES)

    def work(connection):
        statements(connection)
        connection.detach()
        with engine.connect() as other:
            other.exec_driver_sql("SELECT 1")
        connection.exec_driver_sql("INSERT INTO t_order (order_id, note) VALUES (%s, %s)", (FIRST + 1, "x"))
        raise ValueError

    with pytest.raises(ValueError):
        shards.run(FIRST, work)
    assert database.all(0) == ([], [])


def test_a_work_that_raises_ends_no_connection_of_a_pool():
    database = DRIVERS["psycopg2"]()
    kept = database.connect(0)()
    shards = keymill.Shards(router(STAYING), {"s1": PoolOfOne(kept)}, tables=TABLES)
    shards.run(FIRST, lambda connection: insert(connection, FIRST))

    def fails(connection):
        insert(connection, FIRST + 1)
        raise ValueError("no seat")

    for _ in range(2):
        with pytest.raises(ValueError):
            shards.run(FIRST + 1, fails)
    assert not kept.closed and kept.status == psycopg2.extensions.STATUS_READY
    assert [id for id, _ in database.all(0)[0]] == [FIRST]
    kept.close()


def test_a_task_that_a_write_began_writes_after_it():
    database = DRIVERS["psycopg"]()
    shards = database.shards(router(STAYING))

    async def later(go):
        await go.wait()
        return shards.run(FIRST + 1, lambda connection: insert(connection, FIRST + 1))

    async def main():
        go = asyncio.Event()
        with shards.write(FIRST) as connection:
            insert(connection, FIRST)
            task = asyncio.create_task(later(go))
        go.set()
        return await task

    assert asyncio.run(main()) == FIRST + 1
