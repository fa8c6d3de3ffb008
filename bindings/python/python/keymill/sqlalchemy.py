"""SQLAlchemy's models take their ids from keymill, and the ids are kept in the engine's database.

>>> import sqlalchemy
>>> import keymill, keymill.sqlalchemy
>>> orders = sqlalchemy.Table(
...     "orders",
...     sqlalchemy.MetaData(),
...     sqlalchemy.Column("id", sqlalchemy.BigInteger, primary_key=True, default=keymill.lazy("segment:orders")),
... )
>>> engine = sqlalchemy.create_engine("sqlite://")
>>> mill = keymill.sqlalchemy.use(engine, orders.metadata)
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Optional, Union

from sqlalchemy import Column, Engine, Insert, MetaData, event, types
from sqlalchemy.engine import URL

from . import ArgumentError, ConfigError, KeymillError, Lazy, Mill, open, shared, store_of
from . import use as share

if TYPE_CHECKING:
    # It needs `greenlet`, which a program with threads may not have.
    from sqlalchemy.ext.asyncio import AsyncEngine
    from typing_extensions import TypeGuard

__all__ = ["TABLES", "include_name", "init", "use"]

# The tables that keymill makes in a database.
TABLES = frozenset(
    [
        "key_producer",
        "keymill_auto_increment",
        "keymill_reader",
        "keymill_route",
        "keymill_segment",
        "keymill_ticket",
        "keymill_worker",
    ]
)

_lock = threading.Lock()
# The mill that `use` has opened, with the configuration and the process it is of.
_opened: "Optional[tuple[tuple[str, int], Mill]]" = None


def use(engine: "Union[Engine, AsyncEngine]", metadata: Optional[MetaData] = None, *, store: Optional[str] = None) -> Mill:
    """Opens the mill in the engine's database, and shares it with all lazy sources of the process (`keymill.use`).

    `metadata` (`Base.metadata`): every default that is a lazy source is judged, and `ConfigError` names the columns whose spec is wrong, or
    whose type cannot hold what it gives. `store`: the ids are kept in another place, such as "mysql://ids@db/ids". Nothing is asked of a
    database. Called again, it follows to the other engine and closes the mill it had opened; for the same database it goes on with its mill.
    """
    global _opened
    with_threads = engine if isinstance(engine, Engine) else engine.sync_engine
    if not event.contains(with_threads, "before_execute", _refuse_one_value_for_all):
        event.listen(with_threads, "before_execute", _refuse_one_value_for_all)
    if metadata is not None:
        _check(metadata, with_threads)
    config = _configuration(with_threads) if store is None else store
    # What is in memory is a copy in a forked child, which goes on by itself.
    key = (config, os.getpid() if config.startswith("memory:") else 0)
    with _lock:
        before = _opened
        if before is not None and before[0] == key and not before[1].closed:
            mill = before[1]
        else:
            mill = open(config)
            _opened = key, mill
        share(mill)
    if before is not None and before[1] is not mill:
        before[1].close()
    return mill


def init(metadata: MetaData) -> "list[str]":
    """Creates the tables that the sources of these columns need, where they are missing; answers with the statements."""
    return shared().init(*dict.fromkeys(source.spec for _, _, source in _defaults(metadata)))


def include_name(name: Optional[str], type_: str, parent_names: Mapping[str, Any]) -> bool:
    """For Alembic's `context.configure(include_name=keymill.sqlalchemy.include_name)`: autogenerate leaves keymill's tables alone, which are in
    no model, and which it would drop."""
    return type_ != "table" or name not in TABLES


def _refuse_one_value_for_all(connection: Any, statement: Any, *_: Any) -> None:
    """`insert().from_select` asks a default once for all its rows."""
    if not isinstance(statement, Insert) or statement.select is None or not statement.include_insert_from_select_defaults:
        return
    names: "set[Any]" = set(getattr(statement, "_select_names", None) or ())
    for column in statement.table.columns:
        if column.name not in names and _lazy(column.default) is not None:
            raise ArgumentError(
                "INVALID_ARGUMENT",
                f"from_select gives all rows of `{statement.table}` one value of `{column.name}`: select the rows, and insert them with an id each; or name the column, and select its values",
            )


def _configuration(engine: Engine) -> str:
    url = engine.url
    if engine.dialect.name == "sqlite" and (url.database in (None, "", ":memory:") or "mode=memory" in str(url)):
        # As short-lived as the engine's database.
        return "memory:"
    try:
        given = _connect_args(engine)
        return store_of(_with(url, given), given)
    except KeymillError as error:
        # A query may hold a password too.
        shown = url.set(query={}).render_as_string()
        raise ConfigError(error.code, f"the engine of {shown}: {error.message}") from None


class _Look(Exception):
    """What a connection would be opened with."""

    def __init__(self, parameters: "dict[str, Any]") -> None:
        super().__init__("a look at the parameters")
        self.parameters = parameters


def _connect_args(engine: Engine) -> "dict[str, Any]":
    """The parameters of the driver that are not from the URL: `connect_args`, and what listeners of `do_connect` add. No connection is opened."""
    elsewhere = ConfigError(
        "INVALID_CONFIG", "its connections come from `creator=`, or from a listener of `do_connect`, so keymill cannot see where they lead; name the store with use(engine, store=\"…\")"
    )
    # SQLAlchemy's own creator asks the listeners; the program's would open a connection.
    if getattr(getattr(engine.pool, "_creator", None), "__module__", "") != "sqlalchemy.engine.create":
        raise elsewhere
    me = threading.get_ident()

    def look(dialect: Any, record: Any, arguments: Any, parameters: "dict[str, Any]") -> None:
        if threading.get_ident() == me:
            raise _Look(dict(parameters))

    event.listen(engine, "do_connect", look)
    try:
        engine.pool.recreate().connect().close()
    except _Look as seen:
        url = engine.dialect.create_connect_args(engine.url)[1]
        return {key: value for key, value in seen.parameters.items() if key not in url or url[key] != value}
    except Exception:
        # A listener of the program's that needs its database, or a task of asyncio.
        pass
    finally:
        event.remove(engine, "do_connect", look)
    raise elsewhere


# What drivers call the parts of a URL.
_PARTS = {
    "user": "username",
    "username": "username",
    "password": "password",
    "passwd": "password",
    "host": "host",
    "port": "port",
    "database": "database",
    "dbname": "database",
    "db": "database",
}


def _with(url: URL, given: "dict[str, Any]") -> URL:
    """The URL with the parts that the other parameters say, which the driver prefers. They are taken out of these."""
    for name in [name for name in given if name in _PARTS and isinstance(given[name], (str, int))]:
        part, value = _PARTS[name], given.pop(name)
        url = url.set(**{part: int(value) if part == "port" else str(value)})  # type: ignore[arg-type]
    return url


def _lazy(default: Any) -> "Optional[tuple[Lazy[Any], bool]]":
    """The lazy source of a column's default, and whether it gives texts of ids."""
    if not getattr(default, "is_callable", False):
        return None
    call: Any = default.arg
    # SQLAlchemy wraps what takes no context into a function that takes one.
    code = getattr(call, "__code__", None)
    if code is not None and code.co_freevars == ("fn",):
        call = call.__closure__[0].cell_contents
    as_text: bool = getattr(call, "__name__", None) == "next_text"
    source: Any = call if _is_lazy(call) else getattr(call, "__self__", None)
    return (source, as_text) if _is_lazy(source) else None


def _is_lazy(what: Any) -> "TypeGuard[Lazy[Any]]":
    return isinstance(what, Lazy)


def _defaults(metadata: MetaData) -> "Iterator[tuple[Column[Any], bool, Lazy[Any]]]":
    for table in metadata.tables.values():
        for column in table.columns:
            if (found := _lazy(column.default)) is not None:
                yield column, found[1], found[0]


def _check(metadata: MetaData, engine: Engine) -> None:
    # A mill of the check's own judges the specs: nothing is asked of a store.
    with open("memory:") as mill:
        wrong = [
            f"{column.table.fullname}.{column.name}: {fault}"
            for column, as_text, source in _defaults(metadata)
            if (fault := _fault(mill, column, source.spec, as_text, engine)) is not None
        ]
    if wrong:
        raise ConfigError("INVALID_CONFIG", "; ".join(wrong))


def _fault(mill: Mill, column: "Column[Any]", spec: str, as_text: bool, engine: Engine) -> Optional[str]:
    kind: Any = column.type.dialect_impl(engine.dialect)
    while isinstance(kind, types.TypeDecorator):
        kind = kind.impl_instance.dialect_impl(engine.dialect)
    if spec.startswith("business:"):
        return f"`{spec}` needs a key: default=lambda context: source(context.get_current_parameters()[\"…\"])"
    try:
        source = mill.source(spec)
        example: Any = source.next_text() if as_text else source.next()
    except KeymillError as error:
        return error.message
    if isinstance(kind, types.Integer):
        if isinstance(example, str):
            return f"`{spec}` gives texts such as `{example}`, and the column is of numbers ({column.type})"
        bits = 63 if engine.dialect.name == "sqlite" else _bits(kind)
        if example >> bits:
            return f"`{spec}` gives numbers such as {example}, which a column {column.type} cannot hold"
    elif isinstance(kind, (types.Numeric, types.Float)):
        digits = 15 if isinstance(kind, types.Float) else (kind.precision or 19) - (kind.scale or 0)
        if isinstance(example, str) or len(str(example)) > digits:
            return f"`{spec}` gives values such as {example}, which a column {column.type} cannot hold"
    elif isinstance(kind, types.String):
        if isinstance(example, int):
            return f"`{spec}` gives numbers, and the column is of texts ({column.type}): default=keymill.lazy(…).next_text gives texts"
        if kind.length is not None and len(example) > kind.length:
            return f"`{spec}` gives texts such as `{example}`, which a column {column.type} cannot hold"
    return None


def _bits(kind: "types.Integer") -> int:
    widths = {"TINYINT": 7, "SMALLINT": 15, "MEDIUMINT": 23, "BIGINT": 63}
    widths |= {"small_integer": 15, "big_integer": 63}
    return widths.get(kind.__visit_name__, 31) + bool(getattr(kind, "unsigned", False))
