"""The application's own database as the store."""

import os
from collections.abc import Mapping

from . import _keymill
from ._errors import ArgumentError

# Begins the value of what is no text, for the core to judge: the name of its type follows.
_OBJECT = "\ufdd0"


def store_of(database, properties=None):
    """The configuration of a mill in the application's own database: ``keymill.open(keymill.store_of(DATABASES["default"]))``.

    ``database`` is an entry of Django's ``DATABASES``, a URL as SQLAlchemy and ``DATABASE_URL`` write it, or SQLAlchemy's
    ``engine.url``; ``properties`` are parameters beside a URL (``connect_args``). Nothing is opened or asked. The string holds
    the password. ``ConfigError`` names a parameter that says where, as whom or how encrypted, in a way that a mill cannot, or a
    database that cannot be a store; other parameters are ignored and named by ``ignored=``.

    >>> keymill.store_of("mysql+pymysql://app:secret@db/shop?charset=utf8mb4")
    'mysql://app:secret@db:3306/shop?tls=prefer&ignored=charset'
    """
    given = _flat(properties or {})
    if isinstance(database, Mapping):
        entry = dict(database)
        url = "django:" + str(entry.pop("ENGINE", ""))
        return _keymill.store_of(url, _flat(entry) + given)
    # SQLAlchemy's URL hides its password from str().
    if (render := getattr(database, "render_as_string", None)) is not None:
        return _keymill.store_of(render(hide_password=False), given)
    if not isinstance(database, str):
        raise ArgumentError(
            "INVALID_ARGUMENT",
            f"the database is a URL, SQLAlchemy's engine.url or an entry of DATABASES, not a {type(database).__name__}",
        )
    return _keymill.store_of(database, given)


def _flat(parameters, prefix=""):
    """Names and texts; a dictionary inside is named with a dot. No message holds a value: it may be a password."""
    pairs = []
    for key, value in parameters.items():
        name = f"{prefix}{key}"
        if value is None:
            continue
        if isinstance(value, bool):
            pairs.append((name, "true" if value else "false"))
        elif isinstance(value, (str, int, float)):
            pairs.append((name, str(value)))
        elif isinstance(value, os.PathLike):
            pairs.append((name, os.fsdecode(value)))
        elif isinstance(value, Mapping) and all(isinstance(inner, str) for inner in value):
            pairs.extend(_flat(value, f"{name}."))
        else:
            pairs.append((name, _OBJECT + type(value).__name__))
    return pairs
