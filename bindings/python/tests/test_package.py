"""What the package says of itself: version, types, documentation, size."""

import doctest
import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import keymill
import keymill._keymill
from conftest import ROOT

HERE = Path(__file__).parent
PAGES = ("README.md", "bindings/python/README.md", "docs/testing.md", "docs/operations/monitoring.md", "docs/languages/python.md")
DOCUMENTS = [ROOT / name for name in PAGES]


def test_the_version_is_the_core_s():
    cargo = (ROOT / "Cargo.toml").read_text()
    version = re.search(r'\[workspace.package\]\nversion = "(.*?)"', cargo).group(1)
    assert keymill.__version__ == importlib.metadata.version("keymill") == version


def test_codes_are_the_core_s():
    text = (ROOT / "core/src/error/mod.rs").read_text()
    listed = text[text.index("pub enum Code") : text.index("impl Code")]
    numbers = [int(number) for number in re.findall(r"^    \w+ = (\d+),", listed, re.M)]
    assert sorted(keymill.CODES.values()) == sorted([0, *numbers])


def test_every_example_of_the_documentation_runs():
    results = doctest.testmod(keymill)
    assert results.failed == 0 and results.attempted > 30
    for name in ("next", "fill"):
        assert ">>>" in getattr(keymill.Source, name).__doc__


def blocks():
    for document in DOCUMENTS:
        for marker, block in re.findall(r"^(<!-- not run: .*\n)?```python\n(.*?)^```", document.read_text(), re.M | re.S):
            if marker:
                continue
            yield pytest.param(block, id=f"{document.relative_to(ROOT)}: {block.splitlines()[0]}")


@pytest.mark.parametrize("block", list(blocks()))
def test_the_documents_examples_run(block, tmp_path):
    # A process of its own: Django is set up once a process.
    for module in ("django", "sqlalchemy"):
        if f"import {module}" in block or f"from {module}" in block:
            pytest.importorskip(module)
    # An example has the default deadline, which a busy machine may exceed.
    for attempt in range(5):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        example = folder / "example.py"
        example.write_text(block)
        answer = subprocess.run([sys.executable, str(example)], cwd=folder, capture_output=True, text=True)
        if "keymill.DeadlineError" not in answer.stderr:
            break
    assert answer.returncode == 0, answer.stderr


def test_every_document_has_an_example():
    assert all("```python\n" in document.read_text() for document in DOCUMENTS)


def test_the_page_s_table_of_codes_is_the_module_s():
    rows = re.findall(r"^\| `(\w+Error)`.*?\| (.*?) \|$", DOCUMENTS[-1].read_text(), re.M)
    told = {code: family for family, codes in rows for code in re.findall(r"`(\w+)`", codes)}
    assert told == {code: family for code, family in keymill._keymill.FAMILIES.items() if family != "KeymillError"}


@pytest.mark.parametrize("tool", ["mypy", "pyright"])
def test_types_are_strict(tool, tmp_path):
    pytest.importorskip(tool)
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')
    example = tmp_path / "example.py"
    example.write_text((HERE / "typed.py").read_text())
    command = {
        "mypy": ["-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache")],
        "pyright": ["-m", "pyright", "--project", str(tmp_path), "--pythonpath", sys.executable],
    }[tool]
    run = lambda file: subprocess.run([sys.executable, *command, str(file)], capture_output=True, text=True, cwd=tmp_path)
    answer = run(example)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    # Another file: mypy takes one of the same length, written within the same second, for the one it has seen.
    wrong = tmp_path / "wrong.py"
    wrong.write_text(example.read_text().replace("text: str = serial.next()", "text: int = serial.next()"))
    assert run(wrong).returncode != 0, "a serial's id is no int"


def test_stubs_are_what_the_module_is(tmp_path):
    pytest.importorskip("mypy")
    # Generic classes have this by nature; a compiled module lists its names by itself.
    allowed = tmp_path / "allowed"
    allowed.write_text("keymill\\.(Source|Handle|Lazy)\\.__class_getitem__\nkeymill\\._keymill\\.__all__\n")
    # Django has no types of its own.
    (tmp_path / "mypy.ini").write_text("[mypy]\n[mypy-django.*]\nignore_missing_imports = True\n")
    options = ["--allowlist", str(allowed), "--mypy-config-file", str(tmp_path / "mypy.ini")]
    command = [sys.executable, "-m", "mypy.stubtest", "keymill", *options]
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "django.conf.global_settings"}
    answer = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_the_package_is_typed():
    assert any(file.name == "py.typed" for file in importlib.metadata.files("keymill"))


@pytest.mark.skipif(os.environ.get("KEYMILL_PROFILE") == "dev", reason="it is not compiled as users get it")
def test_the_package_is_small():
    # The command is in it, with the moves of shards and the logins of every server. A larger package needs a look at what grew.
    assert sum(file.size or 0 for file in importlib.metadata.files("keymill")) < 14 << 20


def test_importing_does_not_import_asyncio():
    program = "import sys, keymill; keymill.open('memory:').segment('o').next(); sys.exit('asyncio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


