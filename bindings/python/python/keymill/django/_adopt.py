"""Puts the source of a model above the keys that its table has."""

from contextlib import contextmanager

from django.core.management.base import CommandError
from django.db import connections, router, transaction

from keymill import _keymill

from . import _mill
from ._fields import _Takes, table_of


@contextmanager
def locked(connection, table):
    """Nobody inserts into the table meanwhile."""
    quoted = connection.ops.quote_name(table)
    if connection.vendor == "mysql":
        with connection.cursor() as cursor:
            cursor.execute(f"LOCK TABLES {quoted} WRITE")
            try:
                yield
            finally:
                cursor.execute("UNLOCK TABLES")
        return
    with transaction.atomic(using=connection.alias):
        with connection.cursor() as cursor:
            if connection.vendor == "postgresql":
                cursor.execute(f"LOCK TABLE {quoted} IN EXCLUSIVE MODE")
            else:
                # SQLite has one writer.
                cursor.execute(f"UPDATE {quoted} SET rowid = rowid WHERE 0")
        yield


def adopt(model, dry_run, using=None):
    """Answers with the highest key of the table, in the database to which the model's writes go or in this one."""
    field = model._meta.pk
    if not isinstance(field, _Takes) or field.get_internal_type() == "CharField":
        raise CommandError(f"{model._meta.label} has no key of keymill's: its primary key is a {type(field).__name__}")
    connection = connections[using or router.db_for_write(model)]
    with locked(connection, model._meta.db_table):
        highest = field.highest(model, connection.alias)
        spec = field.keymill_spec(model)
        if highest == 0 or _mill.mill().source(spec)._refusal_of_keys(table_of(model), highest) is None:
            return highest
        words = ["--mill", _mill.configuration(), "repair", spec, "--to", str(highest + 1)]
        done = _keymill.command(words if dry_run else [*words, "--yes"])
    if done != 0:
        raise CommandError(f"the source of {model._meta.label} was not changed", returncode=done)
    return highest
