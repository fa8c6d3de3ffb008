"""The command that the wheel brings along. The command's own tests are run against it by `ci/package/wheel`."""

import os
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import keymill
from conftest import NOWHERE

COMMAND = Path(sysconfig.get_path("scripts")) / "keymill"
VERBS = ["next", "take", "parse", "init", "status", "metrics", "repair", "import", "bench", "layout", "completions"]


@pytest.fixture(params=[[str(COMMAND)], [sys.executable, "-m", "keymill"]], ids=["script", "module"])
def command(request, tmp_path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KEYMILL_")}

    def run(*words, **options):
        options = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True, "timeout": 120, **options}
        return subprocess.run([*request.param, *words], **options)

    run.words, run.folder, run.environment = request.param, tmp_path, environment
    return run


def test_ids_go_to_standard_output_and_everything_else_to_standard_error(command):
    first = command("take", "segment:orders", "5")
    assert (first.returncode, first.stdout) == (0, "1\n2\n3\n4\n5\n")
    assert first.stderr.startswith("keymill: created `")
    assert command("take", "segment:orders", "2").stdout == "6\n7\n"
    assert command("--json", "next", "segment:orders").stdout == '"8"\n'


def test_exit_codes_are_the_plain_command_s(command):
    wrong = command("--mill", "memory:", "next", "segment:orders?stepp=1")
    assert wrong.returncode == 1 and wrong.stderr.startswith("keymill: INVALID_CONFIG: "), wrong
    for words in ([], ["bogus"], ["take"]):
        usage = command(*words)
        assert (usage.returncode, usage.stdout) == (2, ""), usage
        assert "Usage: keymill" in usage.stderr
    assert command("--version").stdout == f"keymill {keymill.__version__}\n"
    helped = command("--help")
    assert helped.returncode == 0 and helped.stderr == ""
    for verb in VERBS:
        assert f"\n  {verb} " in helped.stdout and command(verb, "--help").returncode == 0


def test_a_reader_that_has_enough_is_no_error(command):
    line = f"{' '.join(command.words)} --mill memory: take segment:orders 100000000 | head -n 3"
    # In a shell that tells the first command's exit.
    shell = ["bash", "-c", f'{line}; exit "${{PIPESTATUS[0]}}"']
    answer = subprocess.run(shell, cwd=command.folder, env=command.environment, capture_output=True, text=True, timeout=120)
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "1\n2\n3\n", "")


def test_a_closed_standard_output_is_not_the_store_s_file(command):
    closed = subprocess.run(
        ["bash", "-c", f"{' '.join(command.words)} take segment:orders 3 >&-"],
        cwd=command.folder, env=command.environment, capture_output=True, text=True, timeout=120,
    )
    assert closed.returncode == 0, closed.stderr
    assert (command.folder / "keymill.db").read_bytes()[:16] == b"SQLite format 3\0"
    assert command("next", "segment:orders").stdout == "4\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_long_verb_which_gives_back(command, number):
    taker = subprocess.Popen(
        [*command.words, "take", "segment:orders", "1000000000"], cwd=command.folder, env=command.environment, stdout=subprocess.PIPE
    )
    assert taker.stdout.readline() == b"1\n"
    taker.send_signal(number)
    last = taker.stdout.read().splitlines()[-1]
    assert taker.wait(120) == 128 + number
    assert command("next", "segment:orders").stdout == f"{int(last) + 1}\n"


def test_a_signal_ends_a_verb_that_waits_for_a_store(command):
    waiting = subprocess.Popen(
        [*command.words, "--mill", NOWHERE, "next", "segment:orders?deadline=60s"],
        cwd=command.folder, env=command.environment, stderr=subprocess.PIPE,
    )
    waiting.send_signal(signal.SIGTERM)
    assert waiting.wait(120) == -signal.SIGTERM
    waiting.stderr.close()


def test_words_need_not_be_utf_8(command):
    answer = command("next", b"segment:\xff", text=False)
    assert answer.returncode == 2 and b"UTF-8" in answer.stderr, answer
