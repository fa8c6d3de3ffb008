"""Writes of ids whose rows lie on several databases, over the program's own connections."""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, TypeVar
from weakref import ReferenceType

from ._errors import ArgumentError
from ._keymill import Router, _ShardTables, _ShardWrite
from ._shard_connections import Held, Refused, ask, failure_of, held_of, is_of_connection, is_postgres, package_of

T = TypeVar("T")


class _Writing:
    """A write that is under way. A task that it began has the same context, and may outlive it."""

    is_over = False


# The write of this thread or task, which an interruption may end at any line.
_writes: ContextVar[ReferenceType[_Writing] | None] = ContextVar("keymill_writes", default=None)


class _Run:
    """One write: what the core says is done on the program's connections."""

    def __init__(self, connect: Mapping[str, Any], write: _ShardWrite, reads: bool) -> None:
        self.connect, self.write, self.reads = connect, write, reads
        self.process = os.getpid()
        self.held: list[Held | None] = [None, None]
        # What the work has raised.
        self.error: BaseException | None = None
        self.after: list[Callable[[], Any]] = []

    def connection(self) -> Any:
        """What the work gets."""
        return self._on(0).connection

    def until_work(self, answer: tuple[str, int, str, float]) -> str:
        """Goes on to the work, or to the end."""
        if os.getpid() != self.process:
            raise ArgumentError(
                "INVALID_ARGUMENT", "a process that the work has forked cannot end the write, whose connections are its parent's: leave it by `os._exit`"
            )
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
                if package_of(type(error)) == __name__.partition(".")[0]:
                    raise
                said = failure_of(error, self.held[side])
                if said is None:
                    # What a signal's handler raises, such as the time limit of a task, is raised as it is. But a rollback that fails must not
                    # hide what the work has raised.
                    if not is_of_connection(error) and (name != "rollback" or self.error is None):
                        raise
                    said = "", 0, f"{type(error).__name__}: {error}", False
                answer = self.write.failed(*said)

    def worked(self) -> tuple[str, int, str, float]:
        """The work is done."""
        self.error = None
        held = self._on(0)
        if held.is_busy():
            return self.write.unread()
        if not self.reads:
            if held.has_ended():
                return self.write.ended()
            if held.is_doomed():
                return self.write.doomed()
        return self.write.ready()

    def failed(self, error: BaseException) -> tuple[str, int, str, float]:
        """The work has raised this."""
        self.error = error
        held = self._on(0)
        # A work that fails by itself says nothing against its connection.
        state, number, text, is_broken = failure_of(error, held) or ("", 0, "", False)
        return self.write.failed(state, number, text, is_broken or held.is_busy())

    def _open(self, side: int, shard: str, _: float) -> tuple[str, int, str, float]:
        source = self.connect.get(shard)
        if source is None:
            return self.write.unnamed("the mapping of `Shards` says how to get one")
        is_pool = hasattr(source, "getconn")
        connection = source.getconn() if is_pool else source()
        if _is_awaited(connection) or hasattr(connection, "__aenter__"):
            return self.write.refused(
                f"shard `{shard}` has an asynchronous connection ({type(connection).__name__}): give a synchronous one, and call the write in a thread"
            )
        held = held_of(connection, source if is_pool else None)
        other = self.held[1 - side]
        if other is not None and other.raw is held.raw:
            return self.write.shared("each shard needs its own connections")
        # An interruption from here on gives it back.
        self.held[side] = held
        try:
            if not held.take(shard, self.reads):
                self.held[side] = None
                return self.write.in_use()
        except Refused as refused:
            self.held[side] = None
            return self.write.refused(str(refused))
        if held.is_over():
            self.close(side, True)
            return self.write.failed("", 0, "the connection was closed already when it was got", True)
        is_postgresql = is_postgres(held.raw)
        if is_postgresql is None:
            return self.write.refused(
                f"a connection of {type(held.raw).__module__} is of no known driver: PyMySQL, mysqlclient, mysql-connector, psycopg, psycopg2, pg8000"
            )
        return self.write.opened(is_postgresql)

    def _on(self, side: int) -> Held:
        held = self.held[side]
        assert held is not None
        return held

    def _begin(self, side: int, _: str, __: float) -> tuple[str, int, str, float]:
        self._on(side).begin()
        return self.write.ready()

    def _ask(self, side: int, sql: str, _: float) -> tuple[str, int, str, float]:
        return self.write.rows(ask(self._on(side).raw, sql))

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
        if held is None:
            return
        held.leave()
        if not ends:
            try:
                held.give_back()
            except Exception:
                ends = True
        if ends:
            # It may be broken.
            with suppress(Exception):
                held.end()
        # An interruption before this ends the connection.
        self.held[side] = None

    def give_up(self) -> None:
        """Something interrupts the program: nothing that is open stays."""
        if os.getpid() != self.process:
            return
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
                        value = _finished(work(run.connection()))
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


def _is_awaited(value: Any) -> bool:
    if inspect.iscoroutine(value):
        # Python warns of a coroutine that is neither awaited nor closed.
        value.close()
    return inspect.isawaitable(value)


def _finished(value: T) -> T:
    """What a work has answered, unless its statements would run after the commit."""
    if _is_awaited(value) or inspect.isgenerator(value) or inspect.isasyncgen(value):
        raise ArgumentError(
            "INVALID_ARGUMENT",
            f"the work has answered with a {type(value).__name__}, which would run after the commit: the work is a plain function; nothing was written",
        )
    return value


@contextmanager
def _one_write() -> Iterator[None]:
    writes = _writes.get()
    outer = None if writes is None else writes()
    if outer is not None and not outer.is_over:
        raise ArgumentError(
            "INVALID_ARGUMENT",
            "a write inside another one would wait for its locks: this thread's or task's first write has not ended",
        )
    writing = _Writing()
    try:
        _writes.set(ReferenceType(writing))
        yield
    finally:
        writing.is_over = True
