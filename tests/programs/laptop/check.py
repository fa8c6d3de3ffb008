"""Looks at keymill's packages on a laptop with Windows or macOS, in less than ten minutes: python check.py. It needs Python 3.9 or later.

It takes the packages that lie beside it, and Java and Node where they are installed. It writes to a folder of its own, which it deletes.
Send all that it prints.
"""

import glob
import os
import platform
import random
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
WINDOWS = os.name == "nt"
SYSTEM = ("windows" if WINDOWS else "macos") + "-" + {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())
STARTED = time.monotonic()
counts = {"ok": 0, "FAILED": 0, "skipped": 0}


class Skipped(Exception):
    """What it needs is not installed."""


def say(how, name, detail=""):
    counts[how] += 1
    print(f"{how} {name}{': ' if detail else ''}{detail}", flush=True)


def check(name, work):
    try:
        say("ok", name, work() or "")
    except Skipped as e:
        say("skipped", name, str(e))
    except Exception as e:
        # All on one line, so that the shape of what is sent stays.
        say("FAILED", name, " / ".join(f"{type(e).__name__}: {e}".split("\n")))


def run(*command, **environment):
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, **environment})
    if done.returncode != 0:
        raise RuntimeError(f"{os.path.basename(command[0])} ended with {done.returncode}: {(done.stderr or done.stdout).strip()}")
    return " ".join(done.stdout.split())


def package(pattern):
    found = sorted(glob.glob(os.path.join(HERE, pattern)))
    if not found:
        raise Skipped(f"no {pattern} beside this script")
    return found[-1]


def unpack(file, folder):
    if file.endswith(".tgz") or file.endswith(".tar.gz"):
        with tarfile.open(file) as archive:
            # Python 3.12 and 3.13 warn where no filter is named, and 3.9 may not know any.
            archive.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    else:
        with zipfile.ZipFile(file) as archive:
            archive.extractall(folder)


def program(name):
    found = shutil.which(name)
    if found is None:
        raise Skipped(f"no {name} is installed")
    return found


def is_equal(found, wanted):
    if found != wanted:
        raise AssertionError(f"{found!r} instead of {wanted!r}")


class Command:
    """The command, from its archive."""

    path = None

    @classmethod
    def take(cls, file, count, *more):
        return run(cls.path, "--mill", f"sqlite:{file}", "take", "segment:orders?deadline=60s", str(count), *more)


def command():
    file = package(f"keymill-command-*-{SYSTEM}.*")
    unpack(file, "command")
    Command.path = os.path.abspath(glob.glob("command/*/keymill*")[0])
    return run(Command.path, "--version")


def needs_command():
    if Command.path is None:
        raise Skipped("the command does not run")


def ids_go_on():
    needs_command()
    is_equal(Command.take("ids.db", 5), "1 2 3 4 5")
    is_equal(Command.take("ids.db", 5), "6 7 8 9 10")
    return "1 to 5, then 6 to 10"


def distinct(files, cut=False):
    """How many ids are in these files, none of them twice; what a kill cut off at a file's end is no id."""
    ids = twice = 0
    seen = bytearray()  # a byte an id: they begin at 1 and leave little out
    for file in files:
        with open(file, "rb") as log:
            for line in log:
                if cut and not line.endswith(b"\n"):
                    break
                number = int(line)
                if number >= len(seen):
                    seen.extend(bytes(number + (1 << 20) - len(seen)))
                ids += 1
                twice += seen[number]
                seen[number] = 1
    if twice or not ids:
        raise AssertionError(f"{ids} ids, {twice} of them twice")
    return ids


def start(file, count, log):
    with open(log, "wb") as out, open(log + ".err", "wb") as err:
        return subprocess.Popen([Command.path, "--mill", f"sqlite:{file}", "take", "segment:orders?min_step=100&max_step=100&deadline=60s", str(count)], stdout=out, stderr=err)


def two_processes():
    needs_command()
    logs = ["two-1", "two-2"]
    processes = [start("two.db", 20000, log) for log in logs]
    for process in processes:
        is_equal(process.wait(120), 0)
    is_equal(distinct(logs), 40000)
    return "40000 ids, none twice"


def kill_storm(rounds=10, each=8):
    needs_command()
    logs = []
    for turn in range(rounds):
        now = [f"storm-{turn}-{number}" for number in range(each)]
        processes = [start("storm.db", 4000000, log) for log in now]
        until = time.monotonic() + 60
        # Once each has taken, they are killed at a moment that is chance.
        while not all(os.path.getsize(log) for log in now):
            ended = [log for log, process in zip(now, processes) if process.poll() not in (None, 0)]
            if ended or time.monotonic() > until:
                for process in processes:
                    process.kill()
                raise AssertionError(open(ended[0] + ".err").read() if ended else "a process took nothing for a minute")
            time.sleep(0.01)
        time.sleep(random.random() / 2)
        for process in processes:
            process.kill()
            process.wait()
        logs += now
    return f"{rounds * each} kills, {distinct(logs, cut=True)} ids, none twice"


def python():
    unpack(package(f"keymill-*-{'win_amd64' if WINDOWS else 'macosx_11_0_' + SYSTEM[6:].replace('aarch64', 'arm64')}.whl"), "site")
    line = "import keymill; print(*keymill.open('sqlite:python.db').segment('orders').take(3))"
    is_equal(run(sys.executable, "-c", line, PYTHONPATH=os.path.abspath("site")), "1 2 3")
    return platform.python_version()


def java():
    path = os.pathsep.join([package("keymill-*[0-9].jar"), HERE])
    started = program("java")
    os.mkdir("unpacked")
    for wanted in ("1 2 3", "4 5 6"):
        is_equal(run(started, "-Djava.io.tmpdir=unpacked", "-cp", path, "Line", "sqlite:java.db"), wanted)
    return f"two JVMs, libraries left: {len(os.listdir('unpacked'))}"


def node():
    unpack(package("keymill-*.tgz"), "node_modules")
    os.rename("node_modules/package", "node_modules/keymill")
    line = "console.log(require('keymill').open('sqlite:node.db').segment('orders').take(3).join(' '))"
    with open("line.js", "w") as file:
        file.write(line)
    # Into a file: under wine, Node writes to no pipe.
    with open("node.out", "w") as out, open("node.err", "w") as err:
        ended = subprocess.run([program("node"), "line.js"], stdout=out, stderr=err, timeout=120)
    is_equal(open("node.out").read().strip() or open("node.err").read().strip(), "1 2 3")
    is_equal(ended.returncode, 0)
    return "three ids"


def main():
    print(f"keymill check on {platform.platform()}, {platform.machine()}, {os.cpu_count() or 'unknown'} processors", flush=True)
    folder = tempfile.mkdtemp(prefix="keymill-check-")
    os.chdir(folder)
    check("the command starts", command)
    check("ids go on in a second process", ids_go_on)
    check("two processes on one file", two_processes)
    check("eight processes on one file, killed", kill_storm)
    check("a line of Python", python)
    check("a line of Java", java)
    check("a line of Node", node)
    os.chdir(HERE)
    shutil.rmtree(folder, ignore_errors=True)
    print(f"{counts['ok']} ok, {counts['FAILED']} failed, {counts['skipped']} skipped, in {time.monotonic() - STARTED:.0f} s")
    sys.exit(counts["FAILED"] != 0)


main()
