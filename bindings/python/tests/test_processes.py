"""Forks and processes: no number of a parent is issued in its child."""

import ctypes
import multiprocessing
import os
import subprocess
import sys
import textwrap
import time
import urllib.request

import pytest

import keymill


def in_a_child(fork, work):
    """What `work` answers in a child, by a pipe. The child ends at once."""
    end, start = os.pipe()
    child = fork()
    if child == 0:
        status = 1
        try:
            os.write(start, " ".join(map(str, work())).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(start)
    with os.fdopen(end, "rb") as pipe:
        answer = pipe.read().decode().split()
    assert os.waitpid(child, 0)[1] == 0
    return answer


def raw_fork():
    """A fork that Python does not hear of: the C library's, with the interpreter's lock held."""
    return ctypes.PyDLL(None).fork()


WAYS = {
    "next": lambda source, stream, handle: [source.next() for _ in range(50)],
    "next(source)": lambda source, stream, handle: [next(source) for _ in range(50)],
    "iteration": lambda source, stream, handle: [next(stream) for _ in range(50)],
    "handle": lambda source, stream, handle: [handle.next() for _ in range(50)],
    "take": lambda source, stream, handle: source.take(50),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("fork", [os.fork, raw_fork])
@pytest.mark.parametrize("kind", ["segment:a?deadline=60s", "segment:b?order=thread&deadline=60s", "serial:t/c?number=00000000&deadline=60s"])
def test_parent_and_child_share_no_id(sqlite, fork, way, kind):
    with keymill.open(sqlite) as mill:
        source = mill.source(kind)
        stream, handle = iter(source), source.handle()
        for _ in range(3):
            # The memory of both holds what comes next: cursors are in the middle of a block.
            before = [str(next(it)) for it in (source, stream, handle) for _ in range(200)]
            child = in_a_child(fork, lambda: WAYS[way](source, stream, handle))
            after = [str(next(it)) for it in (source, stream, handle) for _ in range(200)]
            every = before + child + after
            assert len(child) == 50 and len(set(every)) == len(every)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_that_asks_for_the_source_again_has_one_order(sqlite):
    with keymill.open(sqlite) as mill:
        source = mill.segment("orders", deadline="60s")
        source.take(10)

        def work():
            again, ids = mill.segment("orders", deadline="60s"), []
            for _ in range(500):
                ids += [source.next(), again.next(), *again.take(2)]
            return ids

        ids = [int(id) for id in in_a_child(os.fork, work)]
        assert len(ids) == 2000 and ids == sorted(set(ids))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_cannot_be_shared_is_refused_in_the_child(sqlite):
    def refused(source):
        def work():
            try:
                return [source.next()]
            except keymill.ClosedError as error:
                return [error.code]

        return work

    with keymill.open("memory:") as memory, keymill.open(sqlite + "?fork=error") as strict, keymill.open(sqlite) as mill:
        for source in (memory.segment("orders", deadline="60s"), strict.segment("orders", deadline="60s"), mill.snowflake("tx", worker=1)):
            source.next()
            assert in_a_child(os.fork, refused(source)) == ["FORKED"]
            source.next()


mill = orders = None


def take_many(config):
    """In a forked worker the parent's mill, in a spawned one its own."""
    source = orders or keymill.open(config).segment("orders", deadline="60s")
    return [*source.take(500), *(source.next() for _ in range(500)), *(id for id, _ in zip(source, range(500)))]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_multiprocessing_makes_no_duplicates(sqlite, method):
    global mill, orders
    with keymill.open(sqlite) as mill:
        orders = mill.segment("orders", deadline="60s")
        mine = take_many(sqlite)
        with multiprocessing.get_context(method).Pool(4) as pool:
            theirs = pool.map(take_many, [sqlite] * 16)
        mine += take_many(sqlite)
        orders = None
        every = [id for ids in (mine, *theirs) for id in ids]
        assert len(set(every)) == len(every) == 18 * 1500


APP = """
import os, keymill
mill = keymill.open({config!r})
orders = mill.segment("orders", deadline="60s")
orders.take(1500), [orders.next() for _ in range(300)]   # the master has numbers in memory when it forks
def app(environ, start_response):
    body = f"{{os.getpid()}} {{orders.next()}} {{next(orders)}} {{' '.join(map(str, orders.take(5)))}}".encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
"""


def test_gunicorn_preload_makes_no_duplicates(sqlite, tmp_path):
    serve(tmp_path, APP.format(config=sqlite))


def serve(tmp_path, app):
    """The ids of two thousand requests to an application that loads before its workers are forked come once."""
    pytest.importorskip("gunicorn")
    (tmp_path / "shop.py").write_text(textwrap.dedent(app))
    command = [sys.executable, "-m", "gunicorn", "--preload", "--workers", "4", "--bind", "127.0.0.1:0", "shop:app"]
    with open(tmp_path / "log", "w") as log:
        server = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log)
    try:
        give_up = time.monotonic() + 240
        while "Listening at: " not in (text := (tmp_path / "log").read_text()) or text.count("Booting worker") < 4:
            assert server.poll() is None and time.monotonic() < give_up, text
            time.sleep(0.05)
        url = text.split("Listening at: ")[1].split()[0]
        ids, workers = [], set()
        while len(ids) < 2000 * 7 or len(workers) < 2:
            assert time.monotonic() < give_up + 60
            worker, *some = urllib.request.urlopen(url, timeout=60).read().decode().split()
            workers.add(worker)
            ids += some
            assert len(some) == 7
        assert len(set(ids)) == len(ids)
    finally:
        server.terminate()
        server.wait(20)


SECOND = """
import sys, keymill
keymill.open("memory:").segment("orders", deadline="60s").next()
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
one = interpreters.create()
interpreters.run_string(one, f'''
try:
    import keymill
except ImportError as error:
    told = str(error)
else:
    told = "imported"
with open({sys.argv[1]!r}, "w") as file:
    file.write(told)
''')
interpreters.destroy(one)
print(keymill.open("memory:").segment("orders", deadline="60s").next())
"""


def test_a_second_interpreter_is_refused_in_words(tmp_path):
    told = tmp_path / "told"
    answer = subprocess.run([sys.executable, "-c", SECOND, told], capture_output=True, text=True, timeout=240)
    assert (answer.returncode, answer.stdout) == (0, "1\n"), answer.stderr
    assert "interpreter" in told.read_text()


def test_an_open_mill_does_not_keep_a_program_from_ending(sqlite):
    program = f"import keymill; orders = keymill.open({sqlite!r}).segment('orders', deadline='60s'); print(orders.take(3))"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=True)
    assert (answer.stdout, answer.stderr) == ("[1, 2, 3]\n", "")


def test_a_local_serial_has_the_zone_that_the_program_set_after_it_opened_its_mill():
    program = """
        import os, keymill
        mill = keymill.open("memory:")
        assert mill.serial("a", "utc").stats()["zone"] == "UTC"
        os.environ["TZ"] = "Pacific/Kiritimati"
        serial = mill.serial("a", "b")
        assert serial.stats()["zone"] == "Pacific/Kiritimati", serial.stats()
        os.environ["TZ"] = "Asia/Shangai"
        try:
            mill.serial("a", "c")
        except keymill.KeymillError as error:
            print(error.code, error)
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, "TZ": "UTC"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ran.stdout.startswith("INVALID_CONFIG") and "`Asia/Shangai` is no time zone" in ran.stdout, ran.stdout


TAKES = """
import multiprocessing, sys, keymill

def take(store):
    # No object of it goes before the process does.
    global mill
    mill = keymill.open(store)
    print(*mill.segment("orders", step=1000).take(1), mill.router("orders").route(1).shard, flush=True)

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    for _ in range(3):
        child = context.Process(target=take, args=(sys.argv[2],))
        child.start()
        child.join()
        assert child.exitcode == 0
"""


FOLLOWS = """
import os, signal, sys, keymill

keymill.open(sys.argv[2]).router("orders").route(1)
if sys.argv[1] == "is terminated":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    os.kill(os.getpid(), signal.SIGTERM)
    signal.pause()
if sys.argv[1] == "exits":
    sys.exit()
if sys.argv[1] == "raises":
    raise RuntimeError("it is raised on purpose")
"""


@pytest.mark.parametrize("end", ["returns", "exits", "raises", "is terminated"])
def test_a_process_that_ends_with_an_open_mill_leaves_no_reader(sqlite, tmp_path, end):
    table = tmp_path / "routes.toml"
    table.write_text('version = 1\n[[range]]\nupper = 65535\nshard = "s1"\n')
    command = [sys.executable, "-m", "keymill", "--mill", sqlite]
    subprocess.run([*command, "route", "put", "orders", str(table), "--yes"], check=True, capture_output=True)
    answer = subprocess.run([sys.executable, "-c", FOLLOWS, end, sqlite], capture_output=True, text=True, timeout=60)
    assert answer.returncode == (1 if end == "raises" else 0), answer.stderr
    status = subprocess.run([*command, "move", "status", "orders"], check=True, capture_output=True, text=True)
    assert "reader:" not in status.stdout, status.stdout


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_child_of_multiprocessing_gives_back_what_it_holds_and_leaves_no_reader(sqlite, tmp_path, method):
    table = tmp_path / "routes.toml"
    table.write_text('version = 1\n[[range]]\nupper = 65535\nshard = "s1"\n')
    command = [sys.executable, "-m", "keymill", "--mill", sqlite]
    subprocess.run([*command, "route", "put", "orders", str(table), "--yes"], check=True, capture_output=True)
    program = tmp_path / "takes.py"
    program.write_text(TAKES)
    answer = subprocess.run([sys.executable, program, method, sqlite], capture_output=True, text=True, timeout=240)
    assert (answer.returncode, answer.stdout) == (0, "1 s1\n2 s1\n3 s1\n"), answer.stderr
    status = subprocess.run([*command, "move", "status", "orders"], check=True, capture_output=True, text=True)
    assert "reader:" not in status.stdout, status.stdout
