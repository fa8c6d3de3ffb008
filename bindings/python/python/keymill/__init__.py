"""keymill hands out ids at memory speed: segments, snowflakes, serial numbers and business ids.

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
from . import _load

_load.check()
try:
    from ._keymill import CODES, VERSION as __version__, Business, Handle, Lazy, Mill, OrderNumbers, Route, Router, Source
    from ._keymill import gene, lazy, open, shared, use
except ImportError as error:
    # An error of the module itself names no file.
    if error.path is None:
        raise
    raise ImportError(_load.reason(error), name=error.name, path=error.path) from error
_load.check_version(__version__)
from . import _children  # noqa: E402
from ._shards import Shards  # noqa: E402
from ._store import store_of  # noqa: E402

_children.install()

__all__ = [
    "CODES",
    "ArgumentError",
    "Business",
    "ClockError",
    "ClosedError",
    "ConfigError",
    "DeadlineError",
    "ExhaustedError",
    "Handle",
    "KeymillError",
    "Lazy",
    "Mill",
    "OrderNumbers",
    "Route",
    "Router",
    "Shards",
    "Source",
    "StoreError",
    "__version__",
    "gene",
    "lazy",
    "open",
    "shared",
    "store_of",
    "use",
]
