"""The cases that every language runs."""

import datetime
import json
import os
import threading
from pathlib import Path

import pytest

import keymill
import keymill._keymill
from conftest import ROOT

FOLDER = Path(os.environ.get("KEYMILL_VECTORS", ROOT / "tests" / "vectors"))
CASES = [
    pytest.param(file.stem, case, id=f"{file.stem}/{case['name']}")
    for file in sorted(FOLDER.glob("*.json"))
    for case in json.loads(file.read_text("utf-8"))["cases"]
]


def text_of(part):
    """A part of an id as the vectors write it."""
    if isinstance(part, datetime.datetime):
        return part.strftime("%Y-%m-%dT%H:%M:%S.") + f"{part.microsecond // 1000:03}Z"
    return str(part)


def key_of(step):
    """The business key of a step."""
    if "key_text" in step:
        return step["key_text"] * int(step.get("times", "1"))
    return int(step["key"])


def shown(route):
    """A route as the vectors write it."""
    parts = {name: getattr(route, name) for name in ("gene", "shard", "read", "write", "mirror", "also", "version")}
    parts["paused"] = "yes" if route.paused else None
    return {name: str(part) for name, part in parts.items() if part is not None}


def on_a_small_stack(read):
    """Calls it in a thread with a stack of 256 KiB, and raises what it raises."""
    raised = []

    def run():
        try:
            read()
        except keymill.KeymillError as error:
            raised.append(error)

    before = threading.stack_size(256 * 1024)
    try:
        thread = threading.Thread(target=run)
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    if raised:
        raise raised[0]


class Runner:
    """One case: its mill and its sources by name."""

    def __init__(self, config, folder):
        self.folder = folder
        self.mill = None if config is None else keymill.open(config)
        self.sources = {}
        self.routers = {}
        self.numbers = {}

    def do(self, step):
        verb = getattr(self, "do_" + step["do"], None)
        assert verb, f"an unknown step: {step}"
        return verb(step)

    def do_open(self, step):
        self.mill = keymill.open(step["config"])

    def do_close(self, step):
        self.mill.close()

    def do_source(self, step):
        self.sources[step["as"]] = self.mill.source(step["spec"])

    def do_next_for(self, step):
        source, key = self.sources[step["of"]], key_of(step)
        return str(source.next(key))

    # The verbs are the same for ids of 128 bits.
    do_next_wide_for = do_next_for

    def do_try_next_for(self, step):
        source, key = self.sources[step["of"]], key_of(step)
        id = source.try_next(key)
        if id is None:
            raise keymill.DeadlineError("NOT_READY", step.get("says", ""))
        return str(id)

    def do_take_for(self, step):
        source, key = self.sources[step["of"]], key_of(step)
        return [str(id) for id in source.take(key, int(step["count"]))]

    do_take_wide_for = do_take_for

    def do_next(self, step):
        return str(self.sources[step["of"]].next())

    def do_try_next(self, step):
        source = self.sources[step["of"]]
        id = source.try_next()
        if id is None:
            # Python's try_next answers with None instead, which says nothing more.
            raise keymill.DeadlineError("NOT_READY", step.get("says", ""))
        return str(id)

    def do_take(self, step):
        return [str(id) for id in self.sources[step["of"]].take(int(step["count"]))]

    def do_next_text(self, step):
        return self.sources[step["of"]].next_text()

    def do_take_text(self, step):
        return self.sources[step["of"]].take_text(int(step["count"]))

    def do_next_text_for(self, step):
        return self.sources[step["of"]].next_text(key_of(step))

    def do_take_text_for(self, step):
        return self.sources[step["of"]].take_text(key_of(step), int(step["count"]))

    def do_text_of(self, step):
        return self.sources[step["of"]].text_of(int(step["id"]))

    def do_parse(self, step):
        source = self.sources[step["of"]]
        return {name: text_of(value) for name, value in source.parse(step["id"]).items()}

    def do_parse_number(self, step):
        return self.do_parse({**step, "id": int(step["id"])})

    def do_clock_set(self, step):
        self.mill.set_clock(int(step["ms"]))

    def do_clock_advance(self, step):
        self.mill.advance_clock(int(step["ms"]))

    def do_gene(self, step):
        return str(keymill.gene(key_of(step)))

    def do_router(self, step):
        self.routers[step["as"]] = keymill.Router.from_text(step["table"])

    def do_load(self, step):
        self.routers[step["of"]].load(step["table"])

    def do_document(self, step):
        text = "".join(piece * int(times) for piece, times in step["text"])
        file = self.folder / "document.toml"

        def in_a_file(read):
            file.touch(mode=0o600)
            file.write_text(text, "utf-8")
            return read(str(file))

        read = {
            "routes": lambda: keymill.Router.from_text(text),
            "load": lambda: keymill.Router.from_text(step["table"]).load(text),
            "keys": lambda: in_a_file(keymill.OrderNumbers.open),
            "config": lambda: in_a_file(lambda path: keymill.open("file:" + path)),
        }[step["kind"]]
        on_a_small_stack(read)

    def do_route(self, step):
        return shown(self.routers[step["of"]].route(int(step["id"])))

    def do_is_current(self, step):
        router = self.routers[step["of"]]
        route = router.route(int(step["id"]))
        router.load(step["table"])
        return "yes" if router.is_current(route) else "no"

    def do_route_wide(self, step):
        return shown(self.routers[step["of"]].route_wide(int(step["id"])))

    def do_route_key(self, step):
        return shown(self.routers[step["of"]].route_key(key_of(step)))

    def do_route_order_no(self, step):
        order_no = step.get("text")
        if "no" in step:
            order_no = bytes.fromhex(step["no"])
        elif "number" in step:
            order_no = int(step["number"])
        return shown(self.routers[step["of"]].route_order_no(order_no))

    def do_numbers(self, step):
        keys = {int(version): bytes.fromhex(key) for version, key in step["keys"]}
        numbers = keymill.OrderNumbers.from_keys(keys, int(step["seal_with"]), step["tenant"], step["table"])
        self.numbers[step["as"]] = numbers.with_version(int(step["version"])) if "version" in step else numbers

    def do_numbers_version(self, step):
        return str(self.numbers[step["of"]].version)

    def of_numbers(self, step):
        """A verb of order numbers; 16 bytes are hexadecimal digits in the vectors."""
        verb = getattr(self.numbers[step["of"]], step["do"])

        def told(value):
            return value.hex() if isinstance(value, bytes) else str(value)

        if step["do"].endswith("_all"):
            given = step["ids"] if "ids" in step else step["nos"]
            return [told(one) for one in verb([bytes.fromhex(one) if step["do"] == "unseal_all" else int(one) for one in given])]
        if "id" in step:
            return told(verb(int(step["id"])))
        if step["do"].endswith("_text"):
            return told(verb(step["no"]))
        return told(verb(int(step["no"]) if step["do"] == "unseal8" else bytes.fromhex(step["no"])))

    do_seal = do_unseal = do_seal_wide = do_unseal_wide = do_seal8 = do_unseal8 = of_numbers
    do_seal_text = do_unseal_text = do_seal_wide_text = do_unseal_wide_text = do_seal8_text = do_unseal8_text = of_numbers
    do_seal_all = do_unseal_all = do_seal8_all = do_unseal8_all = of_numbers

    def do_store_of(self, step):
        properties = dict(step.get("properties", []))
        if engine := step["url"].startswith("django:") and step["url"][len("django:") :]:
            return keymill.store_of({"ENGINE": engine, **properties})
        return keymill.store_of(step["url"], properties)

    def do_spec(self, step):
        return keymill._keymill.spec_string(step["kind"], step["name"], dict(step.get("options", [])))


def test_there_are_cases():
    if not FOLDER.exists():
        pytest.skip(f"{FOLDER} is not there")
    assert CASES


@pytest.mark.parametrize("stem, case", CASES)
def test_vector(stem, case, tmp_path):
    runner = Runner(case.get("mill"), tmp_path)
    for step in case["steps"]:
        expected = step.get("error")
        try:
            answer = runner.do(step)
        except keymill.KeymillError as error:
            assert error.code == expected, f"{step}: {error}"
            assert step.get("says", "") in str(error), step
            assert str(error).isprintable(), step
        else:
            assert expected is None, f"{step}: no error, but {answer}"
            if "is" in step:
                assert answer == step["is"], step
    if runner.mill is not None:
        runner.mill.close()
    if ran := os.environ.get("KEYMILL_VECTORS_RAN"):
        with open(ran, "a", encoding="utf-8") as file:
            file.write(f"{stem}/{case['name']}\n")
