"""Waiting in asyncio. A module of its own, because importing asyncio costs more than all of keymill."""

import asyncio
from typing import Any

from ._errors import ClosedError

# The longest pause between two polls: a close is noticed within it.
LONGEST_PAUSE = 0.02


async def complete(batch: Any) -> Any:
    """The result of a batch; the loop runs on while it waits."""
    while (pause := batch.poll()) is not None:
        await asyncio.sleep(min(pause, LONGEST_PAUSE))
    return batch.result()


async def follow(lazy: Any, verb: str, arguments: Any) -> Any:
    """What a verb of a lazy source gives, at the next mill where its own was replaced and closed meanwhile."""
    while True:
        at = lazy._generation()
        try:
            return await getattr(lazy.source(), verb)(*arguments)
        except ClosedError as error:
            lazy._judge(at, error)
