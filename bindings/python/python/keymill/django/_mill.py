"""The mill of a Django project: where the settings say that its ids are kept."""

import os
import threading

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.db import connections

import keymill

_OPTIONS = {"store", "database"}
# Django's tests copy and drop their databases. PostgreSQL refuses that where a connection stays open for 5 s.
_FOR_TESTS = "idle_timeout=100ms"

_lock = threading.Lock()
_mill = None
_key = None
# What the settings said when they were read; empty before.
_aliases: "list[str | None]" = []
# The names of the databases when the program started; those of tests have others.
_names: "dict[str, object]" = {}


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
    """The database whose store it is; ``None`` where the settings name a store. It is asked for before each id."""
    if not _aliases:
        given = setting()
        _aliases.append(None if "store" in given else given.get("database", "default"))
    return _aliases[0]


def _settings_changed(setting, **kwargs):
    # Only tests change settings.
    if setting == "KEYMILL":
        _aliases.clear()


setting_changed.connect(_settings_changed, dispatch_uid="keymill.django")


def _entry():
    """The entry of ``DATABASES`` of the mill; empty where the settings name a store."""
    return connections.settings.get(alias(), {})


def _is_in_memory(entry):
    name = str(entry.get("NAME", ""))
    return "sqlite" in entry.get("ENGINE", "") and (name == ":memory:" or "mode=memory" in name)


def configuration():
    """The configuration of the mill. Django's tests give a database another name, so it is asked for each time."""
    at = alias()
    if at is None:
        return setting()["store"]
    if at not in connections.settings:
        raise ImproperlyConfigured(f"KEYMILL names the database {at!r}, which DATABASES has not")
    entry = _entry()
    # A database of tests that is as short-lived as the process.
    if _is_in_memory(entry):
        return "memory:"
    store = keymill.store_of(entry)
    if is_of_tests():
        store += ("&" if "?" in store else "?") + _FOR_TESTS
    return store


def _place():
    """What changes when the store becomes another one: tests rename a database."""
    entry = _entry()
    # A forked child has a copy of what its parent has in memory, and goes on by itself.
    process = os.getpid() if _is_in_memory(entry) else 0
    return alias(), entry.get("NAME"), process


def mill():
    """The mill of this process."""
    global _mill, _key
    key = _place()
    with _lock:
        if _mill is None or _key != key:
            old, _mill, _key = _mill, keymill.open(configuration()), key
            if old is not None:
                old.close()
        return _mill


def close():
    """Closes the mill, which gives back what its sources have; the next id opens it again."""
    global _mill, _key
    with _lock:
        old, _mill, _key = _mill, None, None
    if old is not None:
        old.close()


def is_of_tests():
    """Whether the store is a database that tests have made for themselves."""
    entry = _entry()
    return _is_in_memory(entry) or entry.get("NAME") != _names.get(alias(), entry.get("NAME"))


class Source:
    """A source of the project's mill, for one field. It is made again where the tests give the database another name."""

    def __init__(self, spec, table, highest):
        self._spec = spec
        self._table = table
        # Asks for the highest number that the table has; 0: none.
        self._highest = highest
        self._at = None
        self._source = None

    def source(self):
        at = _place()
        if self._at != at:
            self._source = self._made()
            self._at = at
        return self._source

    def _made(self):
        owner, spec, highest = mill(), self._spec, self._highest()
        if highest > 0 and is_of_tests() and "start=" not in spec:
            # Migrations have inserted rows, or the process that was forked has. No other process takes ids from this store.
            return owner.source(spec + ("&" if "?" in spec else "?") + f"start={highest + 1}")
        source = owner.source(spec)
        if highest > 0 and (refusal := source._refusal_of_keys(self._table, highest)) is not None:
            raise keymill.StoreError("STORE_REFUSED", f"{refusal}; `manage.py keymill adopt` does it for a model")
        return source


def remember_names():
    _names.update({at: entry.get("NAME") for at, entry in connections.settings.items()})
