from typing import Any, Final, final

from keymill import Business as Business
from keymill import Handle as Handle
from keymill import Lazy as Lazy
from keymill import Mill as Mill
from keymill import OrderNumbers as OrderNumbers
from keymill import Route as Route
from keymill import Router as Router
from keymill import Source as Source
from keymill import gene as gene
from keymill import lazy as lazy
from keymill import open as open
from keymill import shared as shared
from keymill import use as use

VERSION: Final[str]
CODES: Final[dict[str, int]]
FAMILIES: Final[dict[str, str]]

@final
class _Batch:
    def poll(self) -> float | None: ...
    def poll_or_register(self, notifier: _Notifier, token: int) -> float | None: ...
    def give_up(self) -> None: ...
    def result(self) -> Any: ...

@final
class _Notifier:
    def fileno(self) -> int: ...
    def take(self) -> list[int]: ...
    def wait(self, seconds: float) -> list[int]: ...

def spec_string(kind: str, name: list[str], options: dict[str, Any] | None) -> str: ...
def store_of(url: str, properties: list[tuple[str, str]]) -> str: ...
def command(words: list[str]) -> int: ...
def close_left_open() -> None: ...
