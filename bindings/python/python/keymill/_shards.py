"""Writes of ids whose rows lie on several databases, over the program's own connections."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, TypeVar

from ._errors import ArgumentError
from ._keymill import Router, _ShardTables, _ShardWrite

T = TypeVar("T")

MYSQL = ("pymysql", "MySQLdb", "mysql", "mariadb", "asyncmy")
POSTGRES = ("psycopg", "psycopg2", "psycopg2cffi", "pg8000")

# libpq's PQTRANS_IDLE and PQTRANS_INERROR
IDLE = 0
IN_ERROR = 3

# CR_COMMANDS_OUT_OF_SYNC of MySQL's client: rows of an earlier statement are unread.
COMMANDS_OUT_OF_SYNC = 2014

IN_USE = "shard `{}` got a connection on which another write or read has not ended: each write and each read needs a connection of its own, so read before the write, or on the work's connection"
IN_ATOMIC = "shard `{}`: a transaction of the program is open on `{}` (`transaction.atomic`, `ATOMIC_REQUESTS`, a `TestCase`), and a write begins a transaction of its own: call it outside, in tests in a `TransactionTestCase`"


class _Writing:
    """A write that is under way. A task that it began has the same object, and may outlive it."""

    is_over = False


# What writes and reads have now, by the addresses of the drivers' connections.
_in_use: dict[int, _Held] = {}

# The write of this thread or task.
_writes: ContextVar[_Writing | None] = ContextVar("keymill_writes", default=None)


class _Refused(Exception):
    """This connection cannot be used."""


class _Held:
    """A connection of a driver, or of a pool that wraps one as SQLAlchemy's `raw_connection` does."""

    def __init__(self, connection: Any, pool: Any) -> None:
        self.connection, self.pool = connection, pool
        self.raw = _unwrapped(connection)
        # What autocommit was, where it was changed for the write.
        self.autocommit_before: bool | None = None
        # Whether it is in `_in_use`.
        self.is_own = False
        # Wrappers of the same driver connection whose use was refused. They are kept until this use ends: SQLAlchemy rolls the driver
        # connection back when a wrapper is deleted.
        self.refused: list[_Held] = []

    def take(self, shard: str, reads: bool) -> None:
        """Marks the driver's connection as used, until `leave`."""
        other = _in_use.get(id(self.raw))
        if other is not None and other.is_held():
            other.refused.append(self)
            raise _Refused(IN_USE.format(shard))
        _in_use[id(self.raw)] = self
        self.is_own = True

    def leave(self) -> None:
        if self.is_own:
            # The work may have given the connection back, and another write may have it.
            if _in_use.get(id(self.raw)) is self:
                del _in_use[id(self.raw)]
            self.is_own = False

    def is_held(self) -> bool:
        """Whether the wrapper still has the driver connection. If the work has closed the wrapper, another thread may have the connection."""
        return _unwrapped(self.connection) is self.raw

    def begin(self) -> None:
        # The first statement begins a transaction.
        raw = self.raw
        if _needs_begin(raw):
            # Otherwise the first block of `raw.transaction()` would be the transaction, and commit it.
            if not raw.autocommit:
                self.autocommit_before = False
                self.set_autocommit(True)
            raw.execute("BEGIN")
            return
        has = raw.get_autocommit() if hasattr(raw, "get_autocommit") else getattr(raw, "autocommit", False)
        if has:
            self.autocommit_before = True
            self.set_autocommit(False)

    def set_autocommit(self, to: bool) -> None:
        if callable(getattr(self.raw, "autocommit", None)):
            self.raw.autocommit(to)
        else:
            self.raw.autocommit = to

    def has_ended(self) -> bool:
        """The work has closed the connection, ended the transaction that was begun, or went on after the connection was lost."""
        return not self.is_held() or _is_over(self.raw)

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
        if status == IN_ERROR or status is None and _is_postgres(self.raw):
            _ask(self.raw, "SELECT 1")

    def rollback(self) -> None:
        self.raw.rollback()

    def give_back(self) -> None:
        if not self.is_held():
            return self.drop()
        if self.autocommit_before is not None:
            self.set_autocommit(self.autocommit_before)
        if self.pool is None:
            self.connection.close()
        else:
            self.pool.putconn(self.connection)

    def end(self) -> None:
        """Nobody gets it again."""
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
        if self.pool is not None:
            self.pool.putconn(self.connection)

    def drop(self) -> None:
        """Closes the wrapper after it has lost the driver connection, because it may have connected again."""
        if _unwrapped(self.connection) is not None and not getattr(self.connection, "closed", False):
            self.connection.close()

    def hooks(self) -> list[Callable[[], Any]]:
        """What the program wants to be called after the commit."""
        return []


class _HeldSqlalchemy(_Held):
    """A `Connection` of SQLAlchemy: a `Session` that is bound to it joins the transaction."""

    def __init__(self, connection: Any, pool: Any) -> None:
        super().__init__(connection, pool)
        self.raw = connection.connection.driver_connection
        self.transaction: Any = None

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


class _HeldDjango(_Held):
    """A connection of `django.db.connections`, which is the thread's own and stays open. The transaction is a block of `transaction.atomic`, so that
    the work's own blocks are savepoints in it, and Django refuses what would end it."""

    def __init__(self, connection: Any, pool: Any) -> None:
        if not connection.in_atomic_block:
            connection.ensure_connection()
        super().__init__(connection, pool)
        self.raw = connection.connection
        self.atomic: Any = None
        # How many blocks are open, with the write's own.
        self.blocks = 0
        self.after: list[Callable[[], Any]] = []

    def take(self, shard: str, reads: bool) -> None:
        is_open = self.connection.in_atomic_block or not self.connection.get_autocommit()
        if is_open and not reads:
            raise _Refused(IN_ATOMIC.format(shard, self.connection.alias))
        # A read sees what this transaction has written, and ends nothing.
        if not is_open:
            super().take(shard, reads)

    def begin(self) -> None:
        if self.is_own:
            self.atomic = sys.modules["django.db.transaction"].Atomic(self.connection.alias, False, False)
            self.atomic.__enter__()
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


def _held(connection: Any, pool: Any) -> _Held:
    if hasattr(connection, "ensure_connection") and hasattr(connection, "alias"):
        return _HeldDjango(connection, pool)
    if hasattr(connection, "get_transaction") and hasattr(connection, "connection"):
        return _HeldSqlalchemy(connection, pool)
    return _Held(connection, pool)


def _module(kind: type) -> str:
    return kind.__module__.partition(".")[0]


def _is_postgres(raw: Any) -> bool | None:
    for kind in type(raw).__mro__:
        if _module(kind) in POSTGRES:
            return True
        if _module(kind) in MYSQL:
            return False
    return None


def _cursor(raw: Any) -> Any:
    """A cursor whose rows are tuples and that has no values to put in, whatever the program has set."""
    for kind in type(raw).__mro__:
        module = _module(kind)
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


def _ask(raw: Any, sql: str) -> list[list[bytes | None]]:
    cursor = _cursor(raw)
    try:
        cursor.execute(sql)
        if cursor.description is None:
            return []
        return [[_cell(value) for value in row] for row in cursor.fetchall()]
    finally:
        cursor.close()


def _needs_begin(raw: Any) -> bool:
    """Whether it is a connection of psycopg that has begun no transaction, and would begin one by a plain `BEGIN`."""
    if not any(_module(kind) == "psycopg" for kind in type(raw).__mro__) or raw.info.transaction_status != IDLE:
        return False
    return raw.isolation_level is None and raw.read_only is None and raw.deferrable is None


def _is_of_connectors_pool(connection: Any) -> bool:
    return type(connection).__module__ == "mysql.connector.pooling"


def _unwrapped(connection: Any) -> Any:
    """The driver connection in the wrapper of SQLAlchemy's `raw_connection` or of mysql-connector's pool; None once the wrapper is closed."""
    if _is_of_connectors_pool(connection):
        return connection._cnx
    return connection.driver_connection if hasattr(connection, "driver_connection") else connection


def _is_over(raw: Any) -> bool:
    # PyMySQL and mysqlclient say whether it is open, psycopg whether it is closed.
    if hasattr(raw, "open"):
        return not raw.open
    return bool(getattr(raw, "closed", False))


def _failure(error: BaseException, held: _Held | None) -> tuple[str, int, str, bool] | None:
    """What an exception says about the database: SQLSTATE, number, words, and whether the connection is broken. None: it is of no driver."""
    one: BaseException | None = error
    seen = 0
    while one is not None and seen < 16:
        module = _module(type(one))
        if module in POSTGRES:
            state = getattr(one, "sqlstate", None) or getattr(one, "pgcode", None) or ""
            # pg8000 has the fields of the server's message.
            if not state and one.args and isinstance(one.args[0], dict):
                state = one.args[0].get("C", "")
            return state, 0, str(one).strip() or type(one).__name__, held is None or _is_over(held.raw)
        if module in MYSQL:
            number = one.args[0] if one.args and isinstance(one.args[0], int) else 0
            # mysql-connector has no number of its own for it.
            if number <= 0 and getattr(held and held.raw, "unread_result", False):
                number = COMMANDS_OUT_OF_SYNC
            return getattr(one, "sqlstate", None) or "", max(number, 0), str(one), held is not None and _is_over(held.raw)
        # SQLAlchemy and Django wrap the driver's.
        one = getattr(one, "orig", None) or one.__cause__
        seen += 1
    return None


class _Run:
    """One write: what the core says is done on the program's connections."""

    def __init__(self, connect: Mapping[str, Any], write: _ShardWrite, reads: bool) -> None:
        self.connect, self.write, self.reads = connect, write, reads
        self.held: list[_Held | None] = [None, None]
        self.error: BaseException | None = None
        self.after: list[Callable[[], Any]] = []

    def connection(self) -> Any:
        """What the work gets."""
        held = self.held[0]
        return held and held.connection

    def until_work(self, answer: tuple[str, int, str, float]) -> str:
        """Goes on to the work, or to the end."""
        while True:
            name, side, text, number = answer
            if name in ("work", "done"):
                return name
            if name == "throw":
                assert self.error is not None
                raise self.error
            try:
                answer = getattr(self, "_" + name)(side, text, number)
            except Exception as error:
                if _module(type(error)) == __name__.partition(".")[0]:
                    raise
                self.error = error
                said = _failure(error, self.held[side]) or ("", 0, f"{type(error).__name__}: {error}", False)
                answer = self.write.failed(*said)

    def worked(self) -> tuple[str, int, str, float]:
        """The work is done."""
        held = self.held[0]
        if held is not None and not self.reads:
            if held.has_ended():
                return self.write.ended()
            if held.is_doomed():
                return self.write.doomed()
        return self.write.ready()

    def failed(self, error: BaseException) -> tuple[str, int, str, float]:
        """The work has raised this."""
        self.error = error
        # A work that fails by itself says nothing against its connection.
        return self.write.failed(*(_failure(error, self.held[0]) or ("", 0, "", False)))

    def _open(self, side: int, shard: str, _: float) -> tuple[str, int, str, float]:
        source = self.connect.get(shard)
        if source is None:
            return self.write.refused(
                f"the route table names shard `{shard}`, for which there is no connection: the mapping of `Shards` says how to get one"
            )
        is_pool = hasattr(source, "getconn")
        held = _held(source.getconn() if is_pool else source(), source if is_pool else None)
        other = self.held[1 - side]
        if other is not None and other.raw is held.raw:
            return self.write.refused(
                f"shard `{shard}` got the connection that the other shard has: each shard needs connections of its own"
            )
        try:
            held.take(shard, self.reads)
        except _Refused as refused:
            # It is another one's.
            return self.write.refused(str(refused))
        self.held[side] = held
        is_postgres = _is_postgres(held.raw)
        if is_postgres is None:
            return self.write.refused(
                f"a connection of {type(held.raw).__module__} is of no known driver: PyMySQL, mysqlclient, mysql-connector, psycopg, psycopg2, pg8000"
            )
        return self.write.opened(is_postgres)

    def _on(self, side: int) -> _Held:
        held = self.held[side]
        assert held is not None
        return held

    def _begin(self, side: int, _: str, __: float) -> tuple[str, int, str, float]:
        self._on(side).begin()
        return self.write.ready()

    def _ask(self, side: int, sql: str, _: float) -> tuple[str, int, str, float]:
        return self.write.rows(_ask(self._on(side).raw, sql))

    def _commit(self, side: int, _: str, __: float) -> tuple[str, int, str, float]:
        held = self._on(side)
        held.check()
        held.commit()
        self.after.extend(held.hooks())
        return self.write.ready()

    def _rollback(self, side: int, _: str, __: float) -> tuple[str, int, str, float]:
        held = self._on(side)
        if held.is_held():
            held.rollback()
        return self.write.ready()

    def _close(self, side: int, _: str, ends: float) -> tuple[str, int, str, float]:
        self.close(side, bool(ends))
        return self.write.ready()

    def _wait(self, side: int, _: str, seconds: float) -> tuple[str, int, str, float]:
        time.sleep(seconds)
        return self.write.ready()

    def close(self, side: int, ends: bool) -> None:
        held = self.held[side]
        self.held[side] = None
        if held is None:
            return
        try:
            self.close_held(held, ends)
        finally:
            held.leave()

    def close_held(self, held: _Held, ends: bool) -> None:
        if not ends:
            try:
                return held.give_back()
            except Exception:
                # It is ended instead.
                pass
        try:
            held.end()
        except Exception:
            # It was broken.
            pass

    def give_up(self) -> None:
        """Something interrupts the program: nothing that is open stays."""
        for side in (0, 1):
            self.close(side, True)

    def run_hooks(self) -> None:
        """After everything is committed. An error of one is the caller's, and the others are not called, as in Django."""
        for hook in self.after:
            hook()


class Shards:
    """Writes and reads ids on the shard where they are, over the program's own connections, also while a range of them moves.

    `shards` says how to get a connection to each shard of the router's table: a function that returns a connection of PyMySQL, mysqlclient,
    mysql-connector, psycopg, psycopg2 or pg8000, such as `engine.raw_connection` of SQLAlchemy, which is closed after the write; or a pool with
    `getconn` and `putconn`. `engine.connect` gives connections of SQLAlchemy, to which a `Session` may be bound, and `lambda: django.db.connections["s1"]`
    connections of Django, whose models are used with `using=connection.alias`. `tables` names the tables of the ids, each with the column of the id, the first of its primary key. The first table is the
    root: each id that has rows has one there. Tables to which foreign keys lead come first. `deadline`: for how many seconds a write is tried again.

    While the id's range moves, a write makes the rows of the id the same on the second shard, and commits both. Any thread may use it.

        shards = keymill.Shards(router, {"s1": connect_1, "s2": connect_2}, tables={"t_order": "order_id", "t_item": "item_of"})
        with shards.write(id) as connection, connection.cursor() as cursor:
            cursor.execute("INSERT INTO t_order (order_id, buyer) VALUES (%s, %s)", (id, 42))
    """

    def __init__(
        self,
        router: Router,
        shards: Mapping[str, Any],
        *,
        tables: Mapping[str, str],
        deadline: float = 15.0,
    ) -> None:
        for name, source in shards.items():
            if not callable(source) and not hasattr(source, "getconn"):
                raise ArgumentError(
                    "INVALID_ARGUMENT",
                    f"shard `{name}` has {type(source).__name__}, which is neither a function that returns a connection nor a pool with `getconn`",
                )
        self._shards = dict(shards)
        self._tables = _ShardTables(router, list(tables.items()), deadline)

    @contextmanager
    def write(self, id: int | bytes) -> Iterator[Any]:
        """The connection to the shard that decides where this id is written, in a transaction that is committed at the end of the block.

        The block runs once: where it would have to run again, because a step of a move came in between or the database ended the transaction
        in favour of another one, `DeadlineError` with the code NOT_READY says so, and nothing was written. `run` does it again by itself.
        """
        run = _Run(self._shards, self._tables.begin(id, False, True), False)
        with _one_write():
            yield from self._block(run)
        run.run_hooks()

    @contextmanager
    def read(self, id: int | bytes) -> Iterator[Any]:
        """A connection to the shard from which this id is read, in a transaction that is rolled back at the end of the block."""
        run = _Run(self._shards, self._tables.begin(id, True, True), True)
        yield from self._block(run)
        run.run_hooks()

    def run(self, id: int | bytes, work: Callable[[Any], T]) -> T:
        """Runs `work(connection)` as `write` does, and answers with its value. It runs again within the deadline, where it has to: so it changes
        nothing but this transaction."""
        run = _Run(self._shards, self._tables.begin(id, False, False), False)
        with _one_write():
            try:
                answer = run.write.ready()
                while run.until_work(answer) == "work":
                    try:
                        value = work(run.connection())
                    except Exception as error:
                        answer = run.failed(error)
                    else:
                        answer = run.worked()
            except BaseException:
                run.give_up()
                raise
        run.run_hooks()
        return value

    def _block(self, run: _Run) -> Iterator[Any]:
        try:
            run.until_work(run.write.ready())
            try:
                yield run.connection()
            except Exception as error:
                run.until_work(run.failed(error))
                raise
            run.until_work(run.worked())
        except BaseException:
            run.give_up()
            raise


@contextmanager
def _one_write() -> Iterator[None]:
    outer = _writes.get()
    if outer is not None and not outer.is_over:
        raise ArgumentError(
            "INVALID_ARGUMENT",
            "a write inside another one would wait for its locks: this thread's or task's first write has not ended",
        )
    writing = _Writing()
    _writes.set(writing)
    try:
        yield
    finally:
        writing.is_over = True
