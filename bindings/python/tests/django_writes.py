"""What writes through Django's connections do: run by `test_shards.py` with the databases and the route table, because Django's settings are those of
a process."""

import json
import sys
import threading

import django
from django.conf import settings

order = json.loads(sys.argv[1])
if order["kind"] == "mysql":
    import pymysql

    pymysql.version_info = (2, 2, 7, "final", 0)
    pymysql.install_as_MySQLdb()
# The first is checked once a request.
checked = {**order["databases"][0], "CONN_MAX_AGE": None, "CONN_HEALTH_CHECKS": True}
settings.configure(DATABASES={"default": order["databases"][0], "s1": checked, "s2": order["databases"][1]})
django.setup()
from django.core.signals import request_started  # noqa: E402
from django.db import DatabaseError, connections, models, transaction  # noqa: E402

import keymill  # noqa: E402
from keymill import _shard_connections  # noqa: E402

FIRST = order["first"]
MOVES = "to =" in order["table"]


class Order(models.Model):
    order_id = models.BigIntegerField(primary_key=True)
    note = models.CharField(max_length=40)
    version = models.BigIntegerField(default=0)

    class Meta:
        app_label, db_table = "shop", "t_order"


shards = keymill.Shards(
    keymill.Router.from_text(order["table"]),
    {name: lambda name=name: connections[name] for name in ("s1", "s2")},
    tables=order["tables"],
    deadline=5,
)


def notes(name):
    return dict(Order.objects.using(name).values_list("order_id", "note"))


def on(connection):
    return Order.objects.using(connection.alias)


def raises(kind, words, call, *arguments):
    try:
        call(*arguments)
    except kind as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"it is not refused: {words}")


def alike():
    assert not MOVES or notes("s1") == notes("s2"), (notes("s1"), notes("s2"))
    assert all(connections[name].get_autocommit() and not connections[name].in_atomic_block for name in ("s1", "s2"))
    return notes("s1")


def create(id, note="a"):
    return shards.run(id, lambda connection: on(connection).create(order_id=id, note=note).pk)


def a_block_of_the_work_is_a_savepoint():
    def work(connection):
        with transaction.atomic(using=connection.alias):
            on(connection).create(order_id=FIRST, note="by a model")
        try:
            with transaction.atomic(using=connection.alias):
                on(connection).update(note="undone")
                raise ValueError
        except ValueError:
            pass

    shards.run(FIRST, work)
    assert alike() == {FIRST: "by a model"}
    with shards.write(FIRST) as connection:
        on(connection).filter(pk=FIRST).update(note="changed")
    assert alike() == {FIRST: "changed"}

    def fails(connection):
        on(connection).all().delete()
        raise ValueError("of the work")

    raises(ValueError, "of the work", shards.run, FIRST, fails)
    with shards.read(FIRST) as connection:
        assert on(connection).get().note == "changed"


def a_read_inside_a_write_is_of_its_transaction():
    def work(connection):
        on(connection).create(order_id=FIRST + 1, note="a")
        with shards.read(FIRST + 1) as other:
            assert on(other).get(pk=FIRST + 1).note == "a"
        try:
            with shards.read(FIRST + 2) as other:
                on(other).get(pk=FIRST + 2)
        except Order.DoesNotExist:
            pass

    shards.run(FIRST + 1, work)
    assert FIRST + 1 in alike()

    def fails(connection):
        on(connection).filter(pk=FIRST + 1).delete()
        with shards.read(FIRST) as other:
            on(other).count()
        raise ValueError("after the read")

    raises(ValueError, "after the read", shards.run, FIRST + 1, fails)
    assert FIRST + 1 in alike()


def no_raise_of_two_threads_is_lost():
    def raise_it():
        for _ in range(20):

            def work(connection):
                with shards.read(FIRST) as other:
                    on(other).count()
                row = on(connection).select_for_update().get(pk=FIRST)
                row.version += 1
                row.save()

            shards.run(FIRST, work)
        connections.close_all()

    threads = [threading.Thread(target=raise_it) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Order.objects.using("s1").get(pk=FIRST).version == 40


def a_transaction_of_the_program_is_not_ended():
    for name in ("default", "s1"):
        with transaction.atomic(using=name):
            Order.objects.using(name).filter(pk=FIRST).update(note="outer")
            if name == "s1":
                raises(keymill.ConfigError, "a transaction of the program is open on `s1`", create, FIRST + 5)
            with shards.read(FIRST) as connection:
                assert on(connection).filter(pk=FIRST).count() == 1
        assert notes("s1")[FIRST] == "outer"
    with shards.write(FIRST) as connection:
        pass
    assert FIRST + 5 not in alike()


def what_ends_a_transaction_is_refused():
    for end in (
        lambda connection: connection.commit(),
        lambda connection: connection.rollback(),
        lambda connection: connection.set_autocommit(True),
    ):
        raises(transaction.TransactionManagementError, "", shards.run, FIRST + 6, end)

    def closes(connection):
        on(connection).create(order_id=FIRST + 6, note="lost")
        connection.close()

    raises(keymill.ArgumentError, "has ended its transaction on shard `s1`", shards.run, FIRST + 6, closes)

    def breaks(connection):
        try:
            with transaction.atomic(using=connection.alias, savepoint=False):
                on(connection).create(order_id=FIRST + 6, note="lost")
                raise ValueError
        except ValueError:
            pass

    def dooms(connection):
        on(connection).create(order_id=FIRST + 6, note="lost")
        transaction.set_rollback(True, using=connection.alias)

    for work in (breaks, dooms):
        raises(keymill.ArgumentError, "nothing of such a transaction is kept; nothing was written", shards.run, FIRST + 6, work)

    def leaves_a_block_open(connection):
        block = transaction.atomic(using=connection.alias)
        block.__enter__()
        on(connection).create(order_id=FIRST + 6, note="lost")

    raises(keymill.ArgumentError, "has ended its transaction on shard `s1`", shards.run, FIRST + 6, leaves_a_block_open)
    with shards.read(FIRST + 6) as connection:
        leaves_a_block_open(connection)
    assert FIRST + 6 not in alike()


def kill(connection):
    mine = connection.connection
    thread = mine.thread_id() if order["kind"] == "mysql" else mine.info.backend_pid
    with connections.create_connection("default").cursor() as cursor:
        cursor.execute(f"KILL {thread}" if order["kind"] == "mysql" else f"SELECT pg_terminate_backend({thread})")


def a_connection_that_is_checked_for_each_request_is_replaced():
    kill(connections["s1"])
    request_started.send(None)
    create(FIRST + 10)
    kill(connections["s1"])
    request_started.send(None)
    with shards.read(FIRST + 10) as connection:
        assert on(connection).filter(pk=FIRST + 10).exists()
    assert FIRST + 10 in alike()


def a_block_of_the_driver_is_a_savepoint():
    def work(connection):
        with connection.connection.transaction():
            on(connection).create(order_id=FIRST + 11, note="lost")
        raise ValueError("of the work")

    if order["kind"] == "postgresql":
        raises(ValueError, "of the work", shards.run, FIRST + 11, work)
        assert FIRST + 11 not in alike()


def a_begin_that_the_server_refuses_leaves_no_block():
    if order["kind"] != "postgresql":
        return
    import psycopg

    begin, refused = _shard_connections._begin_of_psycopg, []

    def refuse(raw):
        if refused:
            return begin(raw)
        refused.append(raw)
        raise psycopg.errors.QueryCanceled("of the test")

    _shard_connections._begin_of_psycopg = refuse
    try:
        create(FIRST + 12)
    except keymill.StoreError:
        assert not MOVES
    finally:
        _shard_connections._begin_of_psycopg = begin
    assert refused and (FIRST + 12 in alike()) == MOVES


def a_thread_whose_connection_was_killed_goes_on():
    runs = []

    def work(connection):
        runs.append(connection)
        on(connection).filter(pk=FIRST + 7).exists()
        if len(runs) == 1:
            kill(connection)
        with transaction.atomic(using=connection.alias):
            on(connection).create(order_id=FIRST + 7, note="again")

    raises(DatabaseError, "", shards.run, FIRST + 7, work)
    shards.run(FIRST + 7, work)
    assert alike()[FIRST + 7] == "again"


def hooks_are_called_after_both_commits():
    seen = []

    def work(connection):
        on(connection).create(order_id=FIRST + 8, note="a")
        transaction.on_commit(lambda: seen.append(notes("s2" if MOVES else "s1")[FIRST + 8]), using=connection.alias)
        transaction.on_commit(lambda: create(FIRST + 9), using=connection.alias)
        assert seen == []

    shards.run(FIRST + 8, work)
    assert seen == ["a"] and FIRST + 9 in alike()

    def robust(connection):
        on(connection).filter(pk=FIRST + 8).update(note="a")
        transaction.on_commit(lambda: 1 / 0, using=connection.alias, robust=True)
        transaction.on_commit(lambda: seen.append("after a robust one"), using=connection.alias)

    with shards.write(FIRST + 8) as connection:
        robust(connection)
    assert seen.pop() == "after a robust one"

    def fails(connection):
        transaction.on_commit(lambda: seen.append("called"), using=connection.alias)
        raise ValueError("of the work")

    raises(ValueError, "of the work", shards.run, FIRST + 8, fails)

    def raising(connection):
        on(connection).filter(pk=FIRST + 8).update(note="b")
        transaction.on_commit(lambda: 1 / 0, using=connection.alias)

    raises(ZeroDivisionError, "", shards.run, FIRST + 8, raising)
    assert seen == ["a"] and alike()[FIRST + 8] == "b"


a_block_of_the_work_is_a_savepoint()
a_read_inside_a_write_is_of_its_transaction()
no_raise_of_two_threads_is_lost()
a_transaction_of_the_program_is_not_ended()
what_ends_a_transaction_is_refused()
a_thread_whose_connection_was_killed_goes_on()
a_connection_that_is_checked_for_each_request_is_replaced()
a_block_of_the_driver_is_a_savepoint()
a_begin_that_the_server_refuses_leaves_no_block()
hooks_are_called_after_both_commits()
print("all of it")
