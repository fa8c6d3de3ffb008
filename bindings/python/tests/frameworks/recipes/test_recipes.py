"""The recipes of the page, each as a program starts it. Ids of all processes are disjoint, over a restart too."""

import os
import sys

import pytest

from conftest import BIN, free_port, orders, recipes, run, started, until

SERVERS = {
    "flask under gunicorn": ["gunicorn", "-w", "2", "-b", "127.0.0.1:{port}", "flask_app:app"],
    "flask under gunicorn --preload": ["gunicorn", "--preload", "-w", "2", "-b", "127.0.0.1:{port}", "flask_app:app"],
    "flask under gunicorn's gevent": ["gunicorn", "-k", "gevent", "-w", "2", "-b", "127.0.0.1:{port}", "flask_app:app"],
    "flask under uWSGI": ["uwsgi", "--master", "-p", "2", "--http-socket", "127.0.0.1:{port}", "-w", "flask_app:app", "--die-on-term"],
    "flask under uWSGI with lazy-apps": [
        *["uwsgi", "--master", "--lazy-apps", "-p", "2", "--http-socket", "127.0.0.1:{port}", "-w", "flask_app:app", "--die-on-term"]
    ],
    "flask under uWSGI with threads": [
        *["uwsgi", "--master", "--enable-threads", "--threads", "4", "-p", "2", "--http-socket", "127.0.0.1:{port}"],
        *["-w", "flask_app:app", "--die-on-term"],
    ],
    "fastapi under uvicorn": ["uvicorn", "--port", "{port}", "fastapi_app:app"],
    "fastapi under uvicorn's workers": ["uvicorn", "--workers", "2", "--port", "{port}", "fastapi_app:app"],
}


@pytest.mark.parametrize("server", SERVERS)
def test_workers_give_no_id_twice(server, folder):
    every = []
    for _ in range(1 + ("--preload" in server)):
        port = free_port()
        command = [str(BIN / SERVERS[server][0]), *(word.format(port=port) for word in SERVERS[server][1:])]
        with started(folder, *command):
            ids, processes = orders(port)
            every += ids
            # Which worker answers is the system's choice.
            assert 1 <= len(processes) <= 2
    assert len(set(every)) == len(every) >= 201


@pytest.mark.parametrize("pool", [["prefork", "-c", "2"], ["gevent", "-c", "8"], ["threads", "-c", "4"]])
def test_celery(pool, folder):
    for name in ("queue", "results"):
        (folder / name).mkdir()
    with started(folder, str(BIN / "celery"), "-A", "tasks", "worker", "-P", *pool, "--without-mingle", "--without-gossip"):
        run(folder, sys.executable, "-c", "import tasks\nfor n in range(100): tasks.place.delay()")
        # A file for each id: an id that is given twice is written twice.
        until(lambda: len(os.listdir(folder / "results")) == 100)


@pytest.mark.parametrize("recipe", ["tortoise_models.py", "peewee_models.py", "pydantic_models.py", "columns.py"])
def test_a_library(recipe, folder):
    run(folder, sys.executable, recipe)


def test_every_recipe_of_the_page_is_run():
    servers = {word.partition(":")[0] + ".py" for command in SERVERS.values() for word in command if word.endswith("_app:app")}
    libraries = {"tortoise_models.py", "peewee_models.py", "pydantic_models.py", "columns.py"}
    assert set(recipes()) == servers | libraries | {"tasks.py"}
