"""The recipes of docs/languages/python-frameworks.md as files, and the servers that run them."""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = next(folder for folder in Path(__file__).resolve().parents if (folder / "Cargo.toml").exists())
PAGE = ROOT / "docs/languages/python-frameworks.md"
BIN = Path(sys.executable).parent


def recipes():
    return dict(re.findall(r"^<!-- run: (\w+\.py) -->\n```python\n(.*?)^```", PAGE.read_text(), re.M | re.S))


@pytest.fixture
def folder(tmp_path):
    for name, text in recipes().items():
        (tmp_path / name).write_text(text)
    return tmp_path


def environment(folder):
    return {**os.environ, "KEYMILL_CONFIG": f"sqlite:{folder / 'ids.db'}", "PYTHONPATH": str(folder), "PYTHONWARNINGS": "ignore"}


def run(folder, *command):
    answer = subprocess.run(command, cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=120)
    assert answer.returncode == 0, answer.stderr + answer.stdout
    return answer.stdout


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def ended(process):
    """Ends what was started here, as a system does; nothing of it stays."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(30)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextlib.contextmanager
def started(folder, *command):
    log = folder / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=folder, env=environment(folder), stdout=out, stderr=out, start_new_session=True)
        try:
            yield process
        except BaseException as error:
            raise AssertionError(log.read_text()[-4000:]) from error
        finally:
            ended(process)


def until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        assert time.monotonic() < deadline, "it has not happened"
        time.sleep(0.05)
    return answer


def post(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", "/orders", b"")
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    assert answer.status == 200, text
    return json.loads(text)


def answers(port):
    """An answer, if it comes: a server that ends cuts one short."""
    with contextlib.suppress(OSError, http.client.HTTPException, json.JSONDecodeError):
        return post(port)


def orders(port, count=200):
    """Ids of as many requests at once as there are workers, and the processes that gave them."""
    first = until(lambda: answers(port))
    with ThreadPoolExecutor(8) as pool:
        given = [first, *pool.map(lambda _: post(port), range(count))]
    return [answer["id"] for answer in given], {answer["process"] for answer in given}
