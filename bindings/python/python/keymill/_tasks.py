"""Waiting in programs whose threads carry several tasks, as greenlets: gevent, eventlet, and SQLAlchemy over an asyncio driver.

A call that waits pauses its own task, and the thread's other tasks go on. Nothing is to be switched on. The compiled part calls this where a
call has to wait, and only in programs that have loaded `greenlet`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def pause(seconds: float) -> bool:
    """Lets the thread's other tasks go on for so long; `False`: the thread carries one task, or cannot leave this one."""
    current = sys.modules["greenlet"].getcurrent()
    return any(module in sys.modules and pause_in(current, seconds) for module, pause_in in _LIBRARIES)


def _in_sqlalchemy(current: Any, seconds: float) -> bool:
    if type(current).__name__ != "_AsyncIoGreenlet":
        return False
    import asyncio

    sys.modules["sqlalchemy.util"].await_only(asyncio.sleep(seconds))
    return True


def _in_gevent(current: Any, seconds: float) -> bool:
    hub = sys.modules["gevent._hub_local"].get_hub_if_exists()
    # The hub itself cannot wait for itself: what it calls back sleeps.
    if hub is None or current is hub or hub.dead:
        return False
    sys.modules["gevent"].sleep(seconds)
    return True


def _in_eventlet(current: Any, seconds: float) -> bool:
    hub = getattr(sys.modules["eventlet.hubs"]._threadlocal, "hub", None)
    if hub is None or current is hub.greenlet:
        return False
    sys.modules["eventlet"].sleep(seconds)
    return True


_LIBRARIES: "list[tuple[str, Callable[[Any, float], bool]]]" = [
    ("sqlalchemy.util", _in_sqlalchemy),
    ("gevent._hub_local", _in_gevent),
    ("eventlet.hubs", _in_eventlet),
]
