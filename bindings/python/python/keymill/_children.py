"""Closes the mills of processes that `multiprocessing` starts, which end without the exit of an interpreter.

Its finalizers do so. The child registers one for itself, because `multiprocessing` forgets the parent's there.
"""

import os
import sys

from ._keymill import close_left_open


class _Registration:
    """What `multiprocessing` refers to weakly."""

    begun_in = None


_REGISTRATION = _Registration()


def _begin(registration):
    if registration.begun_in != os.getpid():
        registration.begun_in = os.getpid()
        # Behind the program's own finalizers, which may take ids still.
        sys.modules["multiprocessing.util"].Finalize(None, close_left_open, exitpriority=-100)


def _follow():
    # A program that has not imported it starts no processes by it.
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        util.register_after_fork(_REGISTRATION, _begin)


def install():
    if sys.platform != "win32":  # which has no fork
        os.register_at_fork(after_in_child=_follow)
    _follow()
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None and "multiprocessing.util" in sys.modules:
        _begin(_REGISTRATION)
