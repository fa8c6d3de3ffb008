"""keymill hands out ids at memory speed: segments, snowflakes and serial numbers.

>>> import keymill
>>> with keymill.open("memory:") as mill:
...     orders = mill.segment("orders")
...     orders.next(), next(orders), orders.take(3)
(1, 2, [3, 4, 5])
"""

from ._errors import (
    ArgumentError,
    ClockError,
    ClosedError,
    ConfigError,
    DeadlineError,
    ExhaustedError,
    KeymillError,
    StoreError,
)
from ._keymill import CODES, VERSION as __version__, Handle, Mill, Source, open

__all__ = [
    "CODES",
    "ArgumentError",
    "ClockError",
    "ClosedError",
    "ConfigError",
    "DeadlineError",
    "ExhaustedError",
    "Handle",
    "KeymillError",
    "Mill",
    "Source",
    "StoreError",
    "__version__",
    "open",
]
