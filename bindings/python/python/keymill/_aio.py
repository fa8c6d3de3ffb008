"""Waiting in asyncio. A module of its own, because importing asyncio costs more than all of keymill.

A loop has one notifier. A task that finds no id registers with it and sleeps; when the keeper has news for tasks of the loop, it makes one
descriptor readable, and the loop wakes those tasks and no others. A loop that watches no descriptors (Windows' default one) has a thread
that waits for the news, as long as tasks wait.
"""

import asyncio
import contextlib
import os
import threading
import weakref
from typing import Any

from ._errors import ClosedError
from ._keymill import _Notifier

# How long the thread of a loop stays when no task waits.
_THREAD_STAYS = 1.0


class _Waiters:
    """The tasks of one loop that wait."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.process = os.getpid()
        self.notifier = _Notifier()
        self.futures: dict[int, asyncio.Future[None]] = {}
        self.last = 0
        self.has_thread = False
        self.lock = threading.Lock()
        descriptor = self.notifier.fileno()
        self.needs_thread = descriptor < 0
        if not self.needs_thread:
            try:
                loop.add_reader(descriptor, self._wake_all)
            except NotImplementedError:
                self.needs_thread = True

    def _wake_all(self) -> None:
        self._wake(self.notifier.take())

    def _wake(self, tokens: list[int]) -> None:
        for token in tokens:
            future = self.futures.get(token)
            if future is not None:
                _wake(future)

    async def wait_for(self, batch: Any, loop: asyncio.AbstractEventLoop) -> None:
        """Sleeps until the batch is complete."""
        self.last += 1
        token = self.last
        try:
            while True:
                future = self.futures[token] = loop.create_future()
                if self.needs_thread:
                    self._start_thread(loop)
                pause = batch.poll_or_register(self.notifier, token)
                if pause is None:
                    return
                timer = loop.call_later(pause, _wake, future)
                try:
                    await future
                finally:
                    timer.cancel()
        except BaseException:
            # A cancelled task, for one: its registration and what it had collected go.
            batch.give_up()
            raise
        finally:
            del self.futures[token]

    def _start_thread(self, loop: asyncio.AbstractEventLoop) -> None:
        with self.lock:
            if not self.has_thread:
                threading.Thread(target=self._carry, args=(loop,), name="keymill-asyncio", daemon=True).start()
                self.has_thread = True

    def _carry(self, loop: asyncio.AbstractEventLoop) -> None:
        """Carries the news to the loop, until no task waits or the loop is closed."""
        while True:
            tokens = self.notifier.wait(_THREAD_STAYS)
            with self.lock:
                if loop.is_closed() or not (tokens or self.futures):
                    self.has_thread = False
                    return
            if tokens:
                with contextlib.suppress(RuntimeError):  # it was closed just now
                    loop.call_soon_threadsafe(self._wake, tokens)


def _wake(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


_all: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Waiters]" = weakref.WeakKeyDictionary()


def _waiters(loop: asyncio.AbstractEventLoop) -> _Waiters:
    waiters = _all.get(loop)
    # In a forked child the descriptor is the parent's too.
    if waiters is None or waiters.process != os.getpid():
        # The tasks that waited on a loop when it was closed keep it alive by its waiters.
        for other in [other for other in list(_all) if other.is_closed()]:
            _all.pop(other, None)
        waiters = _all[loop] = _Waiters(loop)
    return waiters


async def complete(batch: Any) -> Any:
    """The result of a batch; the loop runs on while it waits."""
    if batch.poll() is not None:
        loop = asyncio.get_running_loop()
        await _waiters(loop).wait_for(batch, loop)
    return batch.result()


async def follow(lazy: Any, verb: str, arguments: Any) -> Any:
    """What a verb of a lazy source gives, at the next mill where its own was replaced and closed meanwhile."""
    while True:
        at = lazy._generation()
        try:
            return await getattr(lazy.source(), verb)(*arguments)
        except ClosedError as error:
            lazy._judge(at, error)
