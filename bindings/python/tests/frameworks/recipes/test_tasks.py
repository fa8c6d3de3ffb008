"""gevent and eventlet: a call that waits pauses its own task. Each test is a process, because both change what a process is."""

import subprocess
import sys

import pytest

SILENT = """
# A store that accepts and does not answer.
import socket
import keymill
silent = socket.socket()
silent.bind(("127.0.0.1", 0))
silent.listen(64)
mill = keymill.open(f"mysql://app:x@127.0.0.1:{silent.getsockname()[1]}/ids?tls=off")
orders = mill.segment("orders", deadline="500ms")
turns = 0
def others():
    global turns
    while True:
        pause(0)
        turns += 1
def refused(verb):
    try:
        verb()
    except keymill.KeymillError as error:
        assert error.code in ("DEADLINE", "STORE_UNAVAILABLE"), error
    else:
        raise AssertionError(verb)
def go_on(work):
    before = turns
    work()
    # A thread that sleeps has none.
    assert turns - before > 50, turns - before
VERBS = [orders.next, lambda: orders.take(5), lambda: next(orders), lambda: mill.business("b", deadline="500ms").next(1)]
VERBS += [lambda: mill.serial("t", "c", deadline="500ms").next()]
"""

GEVENT = """
import gevent
from gevent import monkey
PATCH
from gevent import sleep as pause
""" + SILENT + """
gevent.spawn(others)
go_on(lambda: gevent.joinall([gevent.spawn(refused, verb) for verb in VERBS], raise_error=True))
go_on(lambda: refused(orders.next))
# A limit of the program's own ends the wait.
for _ in range(3):
    with gevent.Timeout(0.1, False):
        orders.next()
        raise AssertionError
# Threads of its pool have one task each.
go_on(lambda: refused(lambda: gevent.get_hub().threadpool.apply(orders.next)))
"""

EVENTLET = """
import eventlet
PATCH
from eventlet import sleep as pause
""" + SILENT + """
eventlet.spawn(others)
go_on(lambda: [task.wait() for task in [eventlet.spawn(refused, verb) for verb in VERBS]])
go_on(lambda: refused(orders.next))
for _ in range(3):
    with eventlet.Timeout(0.1, False):
        orders.next()
        raise AssertionError
from eventlet import tpool
go_on(lambda: refused(lambda: tpool.execute(orders.next)))
"""

MANY = """
from {library} import sleep as pause
import keymill, {library}
mill = keymill.open("memory:")
orders = mill.segment("orders", deadline="60s")
ids = []
def take():
    for _ in range(200):
        ids.append(orders.next())
        pause(0)
        ids.extend(orders.take(3))
tasks = [{library}.spawn(take) for _ in range(50)]
for task in tasks:
    {wait}
assert len(set(ids)) == len(ids) == 50 * 800
"""


def run(program, tmp_path):
    answer = subprocess.run([sys.executable, "-W", "ignore", "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert answer.returncode == 0, answer.stderr + answer.stdout


@pytest.mark.parametrize("patch", ["", "monkey.patch_all()"])
def test_gevent_s_other_tasks_go_on_while_one_waits(patch, tmp_path):
    run(GEVENT.replace("PATCH", patch), tmp_path)


@pytest.mark.parametrize("patch", ["", "eventlet.monkey_patch()"])
def test_eventlet_s_other_tasks_go_on_while_one_waits(patch, tmp_path):
    run(EVENTLET.replace("PATCH", patch), tmp_path)


@pytest.mark.parametrize("library, wait", [("gevent", "task.get()"), ("eventlet", "task.wait()")])
def test_no_id_is_given_to_two_tasks(library, wait, tmp_path):
    run(MANY.format(library=library, wait=wait), tmp_path)
