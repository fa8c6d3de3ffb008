"""What an import says of a compiled part that cannot be loaded, and what several copies of the package do."""

import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import keymill

PACKAGE = Path(keymill.__file__).parent
USE = "import keymill; print(keymill.open('memory:').segment('o').take(3))"


@pytest.fixture
def copy(tmp_path):
    """The package in a folder of its own, which comes before the installed one."""
    return Path(shutil.copytree(PACKAGE, tmp_path / "keymill"))


@pytest.fixture
def library(copy):
    return next(file for file in copy.iterdir() if file.name.startswith("_keymill.") and file.suffix == ".so")


def run(folder, program=USE):
    # `-E` would hide PYTHONPATH; the folder of `-c` is the working one.
    return subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True)


def refused(folder, *words):
    answer = run(folder)
    last = answer.stderr.splitlines()[-1]
    assert answer.returncode == 1, (answer.returncode, answer.stderr)
    assert last.startswith("ImportError: keymill's compiled part cannot be loaded: "), answer.stderr
    assert all(word in last for word in (*words, "pip install --force-reinstall")), last


def test_a_copy_of_the_package_is_the_one_that_is_imported(copy):
    answer = run(copy.parent, USE + "; print(keymill.__file__)")
    assert answer.stdout.splitlines() == ["[1, 2, 3]", str(copy / "__init__.py")], answer.stderr


@pytest.mark.parametrize("part", [0, 0.00001, 0.001, 0.5, 0.999])
def test_a_truncated_library_is_named_and_does_not_end_the_process(library, part):
    size = library.stat().st_size
    with library.open("r+b") as file:
        file.truncate(int(size * part))
    refused(library.parent.parent, str(library), "not an ELF file" if size * part < 64 else "is truncated")


@pytest.mark.skipif(sys.platform != "linux", reason="ELF")
def test_a_library_for_another_machine_is_named(library):
    with library.open("r+b") as file:
        file.seek(18)
        file.write((243).to_bytes(2, "little"))
    refused(library.parent.parent, str(library), "is for ELF machine 243")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the name of glibc's file")
def test_a_libc_that_is_missing_is_named(library):
    library.write_bytes(library.read_bytes().replace(b"\0libc.so.6\0", b"\0libc.none\0"))
    refused(library.parent.parent, "libc.none: cannot open shared object file")


def test_a_library_for_another_python_is_named(library):
    library.rename(library.with_name("_keymill.cp27-other.so"))
    refused(library.parent.parent, "_keymill.cp27-other.so", sys.implementation.name)


def test_a_file_that_is_no_library_is_named(library):
    library.write_text("#!/bin/sh\n" * 20)
    refused(library.parent.parent, str(library), "not an ELF file")


def test_a_library_of_another_version_is_named(copy):
    module = copy / "_load.py"
    module.write_text(module.read_text().replace(f'VERSION = "{keymill.__version__}"', 'VERSION = "9.9.9"'))
    refused(copy.parent, f"version {keymill.__version__}", "version 9.9.9")


def test_two_copies_in_one_process_work_and_share_no_sqlite_file(tmp_path):
    """One under another name, as programs that carry their dependencies along have it."""
    shutil.copytree(PACKAGE, tmp_path / "carried" / "keymill")
    answer = run(
        tmp_path,
        """
import keymill, carried.keymill as other
assert keymill.__file__ != other.__file__
one, two = keymill.open("sqlite:one.db").segment("orders", deadline="60s"), other.open("memory:").segment("orders", deadline="60s")
assert one.take(3) == two.take(3) == [1, 2, 3]
same = other.open("sqlite:one.db").segment("orders", deadline="60s")
try:
    same.next()
    raise SystemExit("two SQLite libraries on one file")
except other.StoreError as error:
    assert error.code == "STORE_UNSAFE" and "second copy" in error.message, error
    assert not isinstance(error, keymill.KeymillError)
assert one.next() == 4
import asyncio
assert asyncio.run(two.anext()) == 4
""",
    )
    assert answer.returncode == 0, answer.stderr
