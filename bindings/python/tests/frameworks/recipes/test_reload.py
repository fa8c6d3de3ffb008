"""Servers that start their program again where a file of it changes: `manage.py runserver` and `uvicorn --reload`.

`KEYMILL_RELOADS` says how often; the script `ci/steps/python-frameworks --all` does it 200 times."""

import os
import sys
import time
from pathlib import Path

import pytest

from conftest import BIN, answers, free_port, post, started, until

RELOADS = int(os.environ.get("KEYMILL_RELOADS", "4"))

DJANGO = """
import os, sys
import django
from django.conf import settings
from django.core.management import execute_from_command_line
from django.http import JsonResponse
from django.urls import path
settings.configure(
    DEBUG=True, SECRET_KEY="x", ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], INSTALLED_APPS=["keymill.django"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.sqlite3"}},
)
import keymill.django
import reloaded
def orders(request):
    source = keymill.django.mill().segment("orders", deadline="60s")
    return JsonResponse({"id": source.next(), "process": os.getpid(), "reload": reloaded.N})
urlpatterns = [path("orders", orders)]
if __name__ == "__main__":
    execute_from_command_line(sys.argv)
"""
SERVERS = {
    "runserver": [sys.executable, "django_app.py", "runserver", "{port}"],
    "uvicorn": [str(BIN / "uvicorn"), "--reload", "--port", "{port}", "reloading_app:app"],
}


def held(process):
    """How many threads and descriptors it has."""
    return len(os.listdir(f"/proc/{process}/task")), len(os.listdir(f"/proc/{process}/fd"))


@pytest.mark.parametrize("server", SERVERS)
def test_reloads_leave_nothing_behind_and_repeat_no_id(server, folder):
    (folder / "django_app.py").write_text(DJANGO)
    text = (folder / "fastapi_app.py").read_text().replace('"process": os.getpid()', '"process": os.getpid(), "reload": reloaded.N')
    (folder / "reloading_app.py").write_text("import reloaded\n" + text)
    changed = folder / "reloaded.py"
    changed.write_text("N = 0\n")
    port = free_port()
    with started(folder, *(word.format(port=port) for word in SERVERS[server])) as process:
        until(lambda: answers(port))
        ids, servers, children = [], [], []
        for reload in range(1, RELOADS + 1):
            # Python takes a file of the same second and length for the file that it has compiled.
            changed.write_text(f"N = {reload}\n{'#' * reload}\n")
            later = time.time() + 10 * reload
            os.utime(changed, (later, later))
            until(lambda: (answer := answers(port)) and answer["reload"] == reload)
            given = [post(port) for _ in range(20)]
            ids += [answer["id"] for answer in given]
            children.append(held(given[-1]["process"]))
            servers.append(held(process.pid))
    assert len(set(ids)) == len(ids) == 20 * RELOADS
    assert max(servers) <= tuple(count + 1 for count in servers[0]), servers
    assert all(child <= (children[0][0] + 1, children[0][1] + 6) for child in children), children
    # None is left behind.
    until(lambda: not [name for name in os.listdir("/proc") if name.isdigit() and is_of(folder, name)])


def is_of(folder, process):
    try:
        return os.readlink(f"/proc/{process}/cwd") == str(folder) and Path(f"/proc/{process}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False
