"""Waiting in asyncio. A module of its own, because importing asyncio costs more than all of keymill."""

import asyncio
from typing import Any

# The longest pause between two polls: a close is noticed within it.
LONGEST_PAUSE = 0.02


async def complete(batch: Any) -> Any:
    """The result of a batch; the loop runs on while it waits."""
    while (pause := batch.poll()) is not None:
        await asyncio.sleep(min(pause, LONGEST_PAUSE))
    return batch.result()
