"""Says why the compiled part cannot be loaded, where the dynamic loader names another reason or ends the process."""

import os
import struct
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from typing import Optional

# The version of the package's Python files, which is the workspace's in Cargo.toml.
VERSION = "0.2.0"
_FOLDER = os.path.dirname(__file__)
_MACHINES = {62: "x86_64", 183: "aarch64"}


def check() -> None:
    """Refuses what the dynamic loader must not see: it ends the process (SIGBUS) at a library that is cut short."""
    file = _file()
    if file is None:
        there = sorted(name for name in os.listdir(_FOLDER) if name.startswith("_keymill.") and not name.endswith(".pyi"))
        raise ImportError(_message(f"it has none of _keymill{', _keymill'.join(EXTENSION_SUFFIXES)}, but {there or 'nothing'}"))
    if sys.platform == "linux":
        with open(file, "rb") as library:
            head, size = library.read(64), os.fstat(library.fileno()).st_size
        if len(head) < 64 or head[:4] != b"\x7fELF":
            raise ImportError(_message(f"{file} is not an ELF file: it has {size} bytes"), path=file)
        # The section headers stand at the end of the file.
        at, length, count = (*struct.unpack_from("<Q", head, 40), *struct.unpack_from("<HH", head, 58))
        if at + length * count > size:
            raise ImportError(_message(f"{file} is truncated: it has {size} bytes of {at + length * count}"), path=file)


def check_version(found: str) -> None:
    """Refuses a compiled part of another version."""
    if found != VERSION:
        raise ImportError(_message(f"it is of version {found}, the Python files beside it are of version {VERSION}"), path=_file())


def reason(error: ImportError) -> str:
    """What to say of an error of the dynamic loader."""
    if error.path and sys.platform == "linux":
        with open(error.path, "rb") as library:
            number: int = struct.unpack_from("<H", library.read(64), 18)[0]
        machine = _MACHINES.get(number, f"ELF machine {number}")
        if machine != os.uname().machine:
            return _message(f"{error.path} is for {machine}")
    return _message(str(error))


def _file() -> Optional[str]:
    files = (os.path.join(_FOLDER, "_keymill" + suffix) for suffix in EXTENSION_SUFFIXES)
    return next(filter(os.path.exists, files), None)


def _message(what: str) -> str:
    from sysconfig import get_config_var, get_platform

    threads = ", free-threaded" if get_config_var("Py_GIL_DISABLED") else ""
    version = ".".join(map(str, sys.version_info[:3]))
    python = f"{sys.implementation.name} {version}{threads} on {get_platform()}"
    remedy = f"install keymill anew with this Python: {sys.executable} -m pip install --force-reinstall keymill"
    return f"keymill's compiled part cannot be loaded: {what}. This is {python}; {remedy}"
