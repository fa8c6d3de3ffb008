from typing import Any, Final, final

from keymill import Handle as Handle
from keymill import Mill as Mill
from keymill import Source as Source
from keymill import open as open

VERSION: Final[str]
CODES: Final[dict[str, int]]
FAMILIES: Final[dict[str, str]]

__all__: list[str]

@final
class _Batch:
    def poll(self) -> float | None: ...
    def result(self) -> Any: ...
