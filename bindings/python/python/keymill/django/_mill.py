"""The mill of a Django project: where the settings say that its ids are kept."""

import os
import sys
import threading
from itertools import count

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.db import connections
from django.db.utils import load_backend

import keymill

_OPTIONS = {"store", "database"}
# Django's tests copy and drop their databases. PostgreSQL refuses that where a connection stays open for 5 s.
_FOR_TESTS = "idle_timeout=100ms"

_lock = threading.Lock()
_mill = None
_key = None
# Rises when ids may have to come from elsewhere than those before: another mill, other settings, a forked child. A field compares it before
# each id with the value that it found its source at.
epoch = 0
_epochs = count(1)
# What the settings said when they were read; empty before.
_aliases: "list[str | None]" = []
# What the settings said when the program started: the names of the databases (databases of tests have others), and where ids are kept.
_names: "dict[str, object]" = {}
_at_start: "dict[str, object]" = {}


def _begin_epoch():
    global epoch
    epoch = next(_epochs)


def _in_child():
    global _lock
    # Another thread may have held it.
    _lock = threading.Lock()
    # A child has a copy of what its parent has in memory, and goes on by itself. Other mills go on in a child.
    if _key is not None and _key[-1]:
        _begin_epoch()


if sys.platform != "win32":  # which has no fork
    os.register_at_fork(after_in_child=_in_child)


def setting():
    """``KEYMILL`` of the settings: a dictionary with ``store``, or with ``database``, an alias of ``DATABASES``."""
    given = getattr(settings, "KEYMILL", None)
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise ImproperlyConfigured(f"KEYMILL is a dictionary such as {{'store': 'mysql://…'}}, not a {type(given).__name__}")
    unknown = sorted(set(map(str, given)) - _OPTIONS)
    if unknown:
        raise ImproperlyConfigured(f"KEYMILL has no option {unknown[0]!r}; it has 'store' and 'database'")
    if len(given) == 2:
        raise ImproperlyConfigured("KEYMILL has both 'store' and 'database': the ids are kept in one of them")
    return given


def alias():
    """The database whose store it is; ``None`` where the settings name a store."""
    if not _aliases:
        given = setting()
        _aliases.append(None if "store" in given else given.get("database", "default"))
    return _aliases[0]


def _settings_changed(setting, **kwargs):
    # Only tests change settings.
    if setting == "KEYMILL":
        _aliases.clear()
        _begin_epoch()


setting_changed.connect(_settings_changed, dispatch_uid="keymill.django")


def _entry():
    """The entry of ``DATABASES`` of the mill; empty where the settings name a store."""
    return connections.settings.get(alias(), {})


def _is_in_memory(entry):
    name = str(entry.get("NAME", ""))
    return name == ":memory:" or name.startswith("file:") and "mode=memory" in name


def _is_named_as_at_start(at):
    """Whether the database is the program's, and none that tests have made in its place."""
    name = connections.settings.get(at, {}).get("NAME")
    return name == _names.get(at, name)


def _is_tested():
    """Whether Django's tests run, by its own runner or by pytest-django."""
    utils = sys.modules.get("django.test.utils")
    return utils is not None and hasattr(utils._TestState, "saved_data")


def _is_for_the_process():
    """Whether ids come from this process's memory: the database is as short-lived, or it is the real one while tests run, whose counters are
    not theirs. A store that a test itself names is that test's."""
    entry = _entry()
    if _is_in_memory(entry):
        return True
    is_real = not entry or _is_named_as_at_start(alias())
    return is_real and _is_tested() and setting() == _at_start


_DJANGOS = {f"django.db.backends.{name}.base": f"django.db.backends.{name}" for name in ("mysql", "postgresql", "sqlite3")}


def _store(entry):
    if str(entry.get("ENGINE", "")).startswith("django_tenants."):
        # The tenant of this moment. The ids of a table are for all tenants.
        entry = {name: value for name, value in entry.items() if name != "SCHEMA"}
    try:
        return keymill.store_of(entry)
    except keymill.ConfigError:
        engine = _made_of(entry.get("ENGINE", ""))
        if engine is None:
            raise
    return keymill.store_of({**entry, "ENGINE": engine})


def _made_of(engine):
    """Django's engine that one of the project's own extends."""
    try:
        kinds = load_backend(engine).DatabaseWrapper.__mro__
    except Exception:
        # Django says what is wrong with it where it is used.
        return None
    engines = [_DJANGOS[kind.__module__] for kind in kinds if kind.__module__ in _DJANGOS]
    return engines[0] if engines and engine not in engines else None


def configuration():
    """The configuration of the mill. Django's tests give a database another name, so it is asked for each time."""
    at = alias()
    if at is not None and at not in connections.settings:
        raise ImproperlyConfigured(f"KEYMILL names the database {at!r}, which is not in DATABASES")
    if _is_for_the_process():
        return "memory:"
    if at is None:
        return setting()["store"]
    try:
        store = _store(_entry())
    except keymill.KeymillError as error:
        raise ImproperlyConfigured(f"DATABASES[{at!r}]: {error.message}") from error
    # A file has no connections that are closed when they are idle.
    if is_of_tests() and not store.startswith("sqlite:"):
        store += ("&" if "?" in store else "?") + _FOR_TESTS
    return store


def _place():
    """What changes when the store becomes another one: tests rename a database, and override settings."""
    process = os.getpid() if _is_for_the_process() else 0
    return alias(), setting().get("store"), _entry().get("NAME"), process


def mill():
    """The mill of this process."""
    return _opened()[0]


def _opened():
    """The mill, and the epoch that it is of."""
    global _mill, _key
    key = _place()
    with _lock:
        if _mill is None or _key != key:
            old, _mill, _key = _mill, keymill.open(configuration()), key
            _begin_epoch()
            if old is not None:
                old.close()
        return _mill, epoch


def close():
    """Closes the mill, which gives back what its sources have; the next id opens it again."""
    global _mill, _key
    with _lock:
        old, _mill, _key = _mill, None, None
        _begin_epoch()
    if old is not None:
        old.close()


def is_of_tests():
    """Whether the store is a database that tests have made for themselves."""
    return _is_for_the_process() or not _is_named_as_at_start(alias())


def _refuse_rows_beside_programs(table, using):
    """``setup_test_environment()`` alone makes no database: rows then go to a database that programs use."""
    is_real = using in _names and _is_named_as_at_start(using) and not _is_in_memory(connections.settings[using])
    if is_real and _is_tested() and _is_for_the_process():
        raise keymill.StoreError(
            "STORE_REFUSED",
            f"Django's test environment is set up, and rows of {table} go to the database {using!r} of programs: let tests make a database, or insert them without setup_test_environment()",
        )


def found(spec, table, using, highest):
    """The source of a field, with what it is right for: an epoch, and a name that an entry of ``DATABASES`` has. The model's writes go to the
    database `using`; ``None``: its router does not say. `highest` asks for the highest number that the table has; 0: none."""
    _refuse_rows_beside_programs(table, using)
    entry = _entry()
    name = entry.get("NAME")
    owner, at = _opened()
    return at, entry, name, _source(owner, spec, table, highest())


def _source(owner, spec, table, highest):
    if highest > 0 and is_of_tests() and "start=" not in spec:
        # Migrations have inserted rows, or the process that was forked has. No other process takes ids from this store.
        return owner.source(spec + ("&" if "?" in spec else "?") + f"start={highest + 1}")
    source = owner.source(spec)
    if highest > 0 and (refusal := source._refusal_of_keys(table, highest)) is not None:
        raise keymill.StoreError("STORE_REFUSED", f"{refusal}; `manage.py keymill adopt` does it for a model")
    return source


def remember():
    """What the settings say when the program starts."""
    _names.update({at: entry.get("NAME") for at, entry in connections.settings.items()})
    try:
        _at_start.update(setting())
    except ImproperlyConfigured:
        # A system check says it.
        pass
