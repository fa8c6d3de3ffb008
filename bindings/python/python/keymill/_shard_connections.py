"""The program's connections to its shards: what each driver, SQLAlchemy and Django ask for to begin, end and give back one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

MYSQL = ("pymysql", "MySQLdb", "mysql", "mariadb", "asyncmy")
POSTGRES = ("psycopg", "psycopg2", "psycopg2cffi", "pg8000")

# libpq's PQTRANS_IDLE, PQTRANS_ACTIVE, PQTRANS_INTRANS and PQTRANS_INERROR
IDLE = 0
ACTIVE = 1
IN_TRANSACTION = 2
IN_ERROR = 3

# CR_COMMANDS_OUT_OF_SYNC of MySQL's client: rows of an earlier statement are unread.
COMMANDS_OUT_OF_SYNC = 2014

SHARING_POOLS = ("StaticPool", "SingletonThreadPool")
SHARED = "shard `{}` has a `{}`, which gives out a connection that the program may be using: give its engine a pool that has a connection for each write"
IN_ATOMIC = "shard `{}`: a transaction of the program is open on `{}` (`transaction.atomic`, `ATOMIC_REQUESTS`, a `TestCase`), and a write begins a transaction of its own: call it outside, in tests in a `TransactionTestCase`"


# What writes and reads have now, by the addresses of the drivers' connections.
_in_use: dict[int, Held] = {}


class Refused(Exception):
    """This connection cannot be used."""


class Held:
    """A connection of a driver, or of a pool that wraps one as SQLAlchemy's `raw_connection` does."""

    def __init__(self, connection: Any, pool: Any) -> None:
        self.connection, self.pool = connection, pool
        self.raw = _unwrapped(connection)
        # The pool of psycopg_pool that has given the connection.
        self.psycopg_pool: Any = None
        # Autocommit is off until the connection is given back.
        self.had_autocommit = False
        # Whether no other write or read had it.
        self.is_own = False
        # Wrappers of the same driver connection whose use was refused. They are closed when this use ends: SQLAlchemy rolls the driver
        # connection back when a wrapper is closed or deleted.
        self.refused: list[Held] = []

    def take(self, shard: str, reads: bool) -> bool:
        """Marks the driver's connection as used, until `leave`; False: another write or read has it."""
        pool = type(getattr(self.wrapper(), "_pool", None)).__name__
        if pool in SHARING_POOLS:
            # Each end of a use would end a transaction of the others.
            raise Refused(SHARED.format(shard, pool))
        other = _in_use.setdefault(id(self.raw), self)
        if other is not self:
            if other.is_held():
                other.refused.append(self)
                return False
            _in_use[id(self.raw)] = self
        self.is_own = True
        self.keep_from_pool()
        return True

    def keep_from_pool(self) -> None:
        """A work that gives the connection back to its pool of psycopg_pool would give it to another thread in the middle of the transaction."""
        self.psycopg_pool = getattr(self.raw, "_pool", None) if _is_of_psycopg(self.raw) else None
        if self.psycopg_pool is not None:
            self.raw._pool = None

    def restore_pool(self) -> Any:
        pool, self.psycopg_pool = self.psycopg_pool, None
        if pool is not None:
            self.raw._pool = pool
        return pool

    def leave(self) -> None:
        """Before it is given back: another write may have it at once."""
        # The work may have given it back, and another write may have it already.
        if _in_use.get(id(self.raw)) is not self:
            return
        for other in self.refused:
            if other.connection is not other.raw:
                with suppress(Exception):
                    other.connection.close()
        del _in_use[id(self.raw)]

    def is_held(self) -> bool:
        """Whether the wrapper still has the driver connection. If the work has closed the wrapper, another thread may have the connection."""
        return _unwrapped(self.connection) is self.raw

    def begin(self) -> None:
        raw = self.raw
        has = raw.get_autocommit() if hasattr(raw, "get_autocommit") else getattr(raw, "autocommit", False)
        if has:
            self.switch_off_autocommit()
        # Of other drivers the first statement begins a transaction.
        _begin_of_psycopg(raw)

    def switch_off_autocommit(self) -> None:
        self.had_autocommit = True
        self.set_autocommit(False)
        # SQLAlchemy calls this when its pool takes the connection back.
        record = getattr(self.wrapper(), "_connection_record", None)
        if record is not None:
            record.finalize_callback.append(self.is_back)

    def wrapper(self) -> Any:
        """What a pool has given."""
        return self.connection

    def is_back(self, connection: Any) -> None:
        """If autocommit is still off, the work has given the connection back."""
        # The work may have detached it from its pool.
        if connection is self.raw and self.had_autocommit:
            with suppress(Exception):
                self.raw.rollback()
                self.restore_autocommit()

    def restore_autocommit(self) -> None:
        if self.had_autocommit:
            self.set_autocommit(True)
            self.had_autocommit = False

    def set_autocommit(self, to: bool) -> None:
        if callable(getattr(self.raw, "autocommit", None)):
            self.raw.autocommit(to)
        else:
            self.raw.autocommit = to

    def has_ended(self) -> bool:
        """The work has closed the connection, ended the transaction that was begun, or went on after the connection was lost."""
        # A block of `raw.transaction()` that is left open would take what is committed with it.
        return not self.is_held() or self.is_over() or bool(getattr(self.raw, "_num_transactions", 0))

    def is_over(self) -> bool:
        """The driver's connection is closed."""
        # PyMySQL and mysqlclient say whether it is open, psycopg whether it is closed.
        if hasattr(self.raw, "open"):
            return not self.raw.open
        return bool(getattr(self.raw, "closed", False))

    def is_busy(self) -> bool:
        """A statement of the work has not ended, and the next one would wait for ever: `Cursor.stream` or `Cursor.copy` of psycopg."""
        raw = self.raw
        return _is_of_psycopg(raw) and (raw.info.transaction_status == ACTIVE or raw.lock.locked())

    def is_doomed(self) -> bool:
        """The transaction can only be rolled back."""
        return False

    def commit(self) -> None:
        self.raw.commit()

    def check(self) -> None:
        """PostgreSQL rolls back at a commit where a statement has failed, and calls that no error. This one fails then."""
        status = getattr(self.raw, "get_transaction_status", None)
        status = status() if status else getattr(getattr(self.raw, "info", None), "transaction_status", None)
        # psycopg and psycopg2 know it; of other drivers the server is asked.
        if status == IN_ERROR or status is None and is_postgres(self.raw):
            ask(self.raw, "SELECT 1")

    def rollback(self) -> None:
        self.raw.rollback()

    def give_back(self) -> None:
        if not self.is_held():
            return self.drop()
        self.restore_autocommit()
        pool = self.restore_pool()
        if self.pool is not None:
            self.pool.putconn(self.connection)
        elif pool is not None and self.connection is self.raw:
            pool.putconn(self.raw)
        else:
            self.connection.close()

    def end(self) -> None:
        """Closes the connection for good."""
        if not self.is_held():
            return self.drop()
        if hasattr(self.connection, "invalidate") and getattr(self.connection, "is_valid", True):
            self.connection.invalidate()
        if _is_of_connectors_pool(self.connection):
            # Its pool takes the connection back, and opens it again; unread rows would be in the way.
            self.raw.shutdown()
            with suppress(AttributeError):
                # The driver in C has no such setter, and forgets them.
                self.raw.unread_result = False
        self.connection.close()
        # A pool replaces what is closed.
        pool = self.restore_pool()
        if self.pool is not None:
            self.pool.putconn(self.connection)
        elif pool is not None:
            pool.putconn(self.raw)

    def drop(self) -> None:
        """Closes the wrapper after it has lost the driver connection, because it may have connected again."""
        if self.connection is not self.raw and _unwrapped(self.connection) is not None and not getattr(self.connection, "closed", False):
            self.connection.close()
        pool = self.restore_pool()
        if pool is not None and self.raw.closed:
            pool.putconn(self.raw)

    def hooks(self) -> list[Callable[[], Any]]:
        """What the program wants to be called after the commit."""
        return []


class _HeldSqlalchemy(Held):
    """A `Connection` of SQLAlchemy: a `Session` that is bound to it joins the transaction."""

    def __init__(self, connection: Any, pool: Any) -> None:
        super().__init__(connection, pool)
        self.raw = connection.connection.driver_connection
        self.transaction: Any = None

    def wrapper(self) -> Any:
        return self.connection.connection

    def begin(self) -> None:
        super().begin()
        # A function that has set something on the connection has begun it.
        self.transaction = self.connection.get_transaction() or self.connection.begin()

    def is_held(self) -> bool:
        connection = self.connection
        # An invalidated one would connect again.
        return not connection.closed and not connection.invalidated and connection.connection.driver_connection is self.raw

    def has_ended(self) -> bool:
        # After a rollback or a reconnection the same object has another transaction, or none.
        return not self.is_held() or not self.transaction.is_active

    def commit(self) -> None:
        self.connection.commit()

    def rollback(self) -> None:
        self.connection.rollback()


class _HeldDjango(Held):
    """A connection of `django.db.connections`, which is the thread's own and stays open. The transaction is a block of `transaction.atomic`, so that
    the work's own blocks are savepoints in it, and Django refuses what would end it."""

    def __init__(self, connection: Any, pool: Any) -> None:
        if not connection.in_atomic_block:
            if hasattr(connection, "close_if_health_check_failed"):
                # Otherwise the first statement does it, and replaces the connection.
                connection.close_if_health_check_failed()
            connection.ensure_connection()
        super().__init__(connection, pool)
        self.raw = connection.connection
        self.atomic: Any = None
        # How many blocks are open, with the write's own.
        self.blocks = 0
        self.after: list[Callable[[], Any]] = []

    def take(self, shard: str, reads: bool) -> bool:
        is_open = self.connection.in_atomic_block or not self.connection.get_autocommit()
        if is_open and not reads:
            raise Refused(IN_ATOMIC.format(shard, self.connection.alias))
        # A read sees what this transaction has written, and ends nothing.
        return is_open or super().take(shard, reads)

    def keep_from_pool(self) -> None:
        # Django gives it back.
        pass

    def begin(self) -> None:
        if self.is_own:
            self.atomic = sys.modules["django.db.transaction"].Atomic(self.connection.alias, False, False)
            self.atomic.__enter__()
            try:
                _begin_of_psycopg(self.raw)
            except BaseException:
                self.end()
                raise
            self.blocks = self._open_blocks()

    def _open_blocks(self) -> int:
        return len(self.connection.savepoint_ids) + len(self.connection.atomic_blocks)

    def is_held(self) -> bool:
        # It is the thread's own.
        return True

    def has_ended(self) -> bool:
        connection = self.connection
        if not self.is_own:
            return False
        # A block that the work has left open would take what is committed with it.
        return connection.closed_in_transaction or connection.connection is not self.raw or self._open_blocks() != self.blocks

    def is_doomed(self) -> bool:
        # An `atomic` block in it has failed, or `set_rollback` was called.
        return self.is_own and bool(self.connection.needs_rollback)

    def commit(self) -> None:
        if self.is_own:
            # They are for the time after both shards have committed.
            hooks, self.connection.run_on_commit = self.connection.run_on_commit, []
            self._leave_block()
            self.after = [_robust(hook[1]) if hook[2:] == (True,) else hook[1] for hook in hooks]

    def rollback(self) -> None:
        if self.is_own and self.has_ended():
            self.end()
        elif self.is_own:
            self.connection.needs_rollback = True
            self._leave_block()

    def _leave_block(self) -> None:
        atomic, self.atomic = self.atomic, None
        if atomic is not None:
            atomic.__exit__(None, None, None)

    def give_back(self) -> None:
        pass

    def end(self) -> None:
        if not self.is_own:
            return
        # Whatever blocks the work has left open ended with the connection.
        connection = self.connection
        connection.in_atomic_block, connection.needs_rollback, connection.closed_in_transaction = False, False, False
        connection.savepoint_ids, connection.run_on_commit, connection.atomic_blocks = [], [], []
        connection.close()
        connection.connection = None

    def hooks(self) -> list[Callable[[], Any]]:
        return self.after


def _robust(hook: Callable[[], Any]) -> Callable[[], Any]:
    """A hook of `transaction.on_commit(…, robust=True)`: its error is logged, as Django does, and the next one is called."""

    def call() -> None:
        try:
            hook()
        except Exception as error:
            name = getattr(hook, "__qualname__", hook)
            logger = sys.modules["logging"].getLogger("django.db.backends.base")
            logger.error("Error calling %s in on_commit() (%s).", name, error, exc_info=True)

    return call


def held_of(connection: Any, pool: Any) -> Held:
    if hasattr(connection, "ensure_connection") and hasattr(connection, "alias"):
        return _HeldDjango(connection, pool)
    if hasattr(connection, "get_transaction") and hasattr(connection, "connection"):
        return _HeldSqlalchemy(connection, pool)
    return Held(connection, pool)


def package_of(kind: type) -> str:
    return kind.__module__.partition(".")[0]


def is_postgres(raw: Any) -> bool | None:
    for kind in type(raw).__mro__:
        if package_of(kind) in POSTGRES:
            return True
        if package_of(kind) in MYSQL:
            return False
    return None


def _cursor(raw: Any) -> Any:
    """A cursor whose rows are tuples and that has no values to put in, whatever the program has set."""
    for kind in type(raw).__mro__:
        module = package_of(kind)
        if module in ("pymysql", "MySQLdb"):
            return raw.cursor(sys.modules[module + ".cursors"].Cursor)
        if module == "mysql":
            return raw.cursor(raw=False, dictionary=False, buffered=True)
        if module == "psycopg2":
            return raw.cursor(cursor_factory=sys.modules["psycopg2.extensions"].cursor)
        if module == "psycopg":
            # A cursor of the client has the simple protocol's texts, whatever class the program uses.
            return sys.modules["psycopg"].Cursor(raw, row_factory=sys.modules["psycopg.rows"].tuple_row)
    return raw.cursor()


def _cell(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    return str(value).encode()


def ask(raw: Any, sql: str) -> list[list[bytes | None]]:
    cursor = _cursor(raw)
    try:
        cursor.execute(sql)
        rows = [] if cursor.description is None else [[_cell(value) for value in row] for row in cursor.fetchall()]
    except BaseException:
        # mysqlclient cannot close it where an interruption has left rows unread, and would say that instead.
        with suppress(Exception):
            cursor.close()
        raise
    cursor.close()
    return rows


def _is_of_psycopg(raw: Any) -> bool:
    return any(package_of(kind) == "psycopg" for kind in type(raw).__mro__)


def _begin_of_psycopg(raw: Any) -> None:
    """Begins a transaction on a connection of psycopg, as its first statement would. Without it a block of `raw.transaction()` would be the
    transaction, and commit it."""
    if not _is_of_psycopg(raw) or raw.info.transaction_status != IDLE or getattr(raw, "_pipeline", None):
        return
    words = ["BEGIN"]
    if raw.isolation_level is not None:
        level = sys.modules["psycopg"].IsolationLevel(raw.isolation_level)
        words.append("ISOLATION LEVEL " + level.name.replace("_", " "))
    if raw.read_only is not None:
        words.append("READ ONLY" if raw.read_only else "READ WRITE")
    if raw.deferrable is not None:
        words.append("DEFERRABLE" if raw.deferrable else "NOT DEFERRABLE")
    with raw.lock:
        raw.pgconn.send_query(" ".join(words).encode())
        results = raw.wait(sys.modules["psycopg.generators"].execute(raw.pgconn))
    if raw.info.transaction_status != IN_TRANSACTION:
        raise sys.modules["psycopg.errors"].error_from_result(results[-1])


def _is_of_connectors_pool(connection: Any) -> bool:
    return type(connection).__module__ == "mysql.connector.pooling"


def _unwrapped(connection: Any) -> Any:
    """The driver connection in the wrapper of SQLAlchemy's `raw_connection` or of mysql-connector's pool; None once the wrapper is closed."""
    if _is_of_connectors_pool(connection):
        return connection._cnx
    return connection.driver_connection if hasattr(connection, "driver_connection") else connection


def is_of_connection(error: Exception) -> bool:
    """Whether an exception that is of no driver says that a database is away: a driver may let one of Python's through."""
    if isinstance(error, ConnectionError) or package_of(type(error)) == "sqlalchemy":
        return True
    if package_of(type(error)) not in ("builtins", "struct", "ssl"):
        return False
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    module = at.tb_frame.f_globals.get("__name__", "") if at is not None else ""
    return module.partition(".")[0] in (*MYSQL, *POSTGRES, "socket", "ssl")


def failure_of(error: BaseException, held: Held | None) -> tuple[str, int, str, bool] | None:
    """What an exception says about the database: SQLSTATE, number, words, and whether the connection is broken. None: it is of no driver."""
    one: BaseException | None = error
    seen = 0
    while one is not None and seen < 16:
        module = package_of(type(one))
        if module in POSTGRES:
            state = getattr(one, "sqlstate", None) or getattr(one, "pgcode", None) or ""
            # pg8000 has the fields of the server's message.
            if not state and one.args and isinstance(one.args[0], dict):
                state = one.args[0].get("C", "")
            return state, 0, str(one).strip() or type(one).__name__, held is None or held.is_over()
        if module in MYSQL:
            number = one.args[0] if one.args and isinstance(one.args[0], int) else 0
            # mysql-connector has no number of its own for it.
            if number <= 0 and getattr(held and held.raw, "unread_result", False):
                number = COMMANDS_OUT_OF_SYNC
            # The answer of the statement may still come, and be taken for the next one's.
            timed_out = type(one).__name__ in ("ReadTimeoutError", "WriteTimeoutError")
            is_broken = timed_out or held is not None and held.is_over()
            return getattr(one, "sqlstate", None) or "", max(number, 0), str(one), is_broken
        # SQLAlchemy and Django wrap the driver's.
        one = getattr(one, "orig", None) or one.__cause__
        seen += 1
    return None
