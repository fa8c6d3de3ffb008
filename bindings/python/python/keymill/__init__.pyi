from collections.abc import Coroutine, Iterator, Mapping
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Final, Generic, SupportsIndex, TypedDict, TypeVar, Union, final

from typing_extensions import Buffer, Self, TypeAlias

from ._errors import ArgumentError as ArgumentError
from ._errors import ClockError as ClockError
from ._errors import ClosedError as ClosedError
from ._errors import ConfigError as ConfigError
from ._errors import DeadlineError as DeadlineError
from ._errors import ExhaustedError as ExhaustedError
from ._errors import KeymillError as KeymillError
from ._errors import StoreError as StoreError

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

__version__: Final[str]
CODES: Final[Mapping[str, int]]

# int where a source hands out numbers, str where it hands out serial numbers.
_Id = TypeVar("_Id", int, str)
_Option: TypeAlias = Union[str, bool, int, float, timedelta, None]

# Which of these an id has depends on its source's kind: a snowflake time, worker and sequence (and
# datacenter, where its worker was given as DC+N), a segment number, a serial
# date and number. All are declared, so that parse(id)["worker"] type-checks; another kind's key raises KeyError.
class _Parts(TypedDict):
    time: datetime
    datacenter: int
    worker: int
    sequence: int
    date: str
    number: int

class _Stats(TypedDict):
    source: str
    spec: str
    issued: int
    reserved: int
    left: int
    lost: int
    refills: int
    waits: int
    step: int
    last_refill_ms: int | None
    rate: float
    runway_seconds: float | None
    lead_ms: int | None
    ends_at_ms: int | None
    refusal: str | None

def open(config: str | None = None) -> Mill: ...
@final
class Mill:
    def source(self, spec: str, /) -> Source[Any]: ...
    def segment(self, name: str, /, **options: _Option) -> Source[int]: ...
    def snowflake(self, name: str, /, **options: _Option) -> Source[int]: ...
    def serial(self, table: str, column: str, /, **options: _Option) -> Source[str]: ...
    def close(self) -> None: ...
    @property
    def closed(self) -> bool: ...
    @property
    def store(self) -> str: ...
    def metrics(self) -> str: ...
    def stats(self) -> list[_Stats]: ...
    def events(self) -> list[str]: ...
    def init(self, *specs: str, dry_run: bool = False) -> list[str]: ...
    def advance_clock(self, ms: SupportsIndex, /) -> None: ...
    def set_clock(self, ms: SupportsIndex, /) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        raised: BaseException | None = None,
        traceback: TracebackType | None = None,
        /,
    ) -> None: ...

@final
class Source(Generic[_Id]):
    def next(self) -> _Id: ...
    def try_next(self) -> _Id | None: ...
    def take(self, count: SupportsIndex, /) -> list[_Id]: ...
    def fill(self, buffer: Buffer, /) -> None: ...
    def anext(self) -> Coroutine[Any, Any, _Id]: ...
    def take_async(self, count: SupportsIndex, /) -> Coroutine[Any, Any, list[_Id]]: ...
    def parse(self, id: SupportsIndex | str, /) -> _Parts: ...
    def handle(self) -> Handle[_Id]: ...
    def stats(self) -> _Stats: ...
    def settings(self) -> dict[str, str]: ...
    @property
    def label(self) -> str: ...
    def __iter__(self) -> Iterator[_Id]: ...
    def __next__(self) -> _Id: ...
    def __aiter__(self) -> Self: ...
    def __anext__(self) -> Coroutine[Any, Any, _Id]: ...

@final
class Handle(Generic[_Id]):
    def next(self) -> _Id: ...
    def __iter__(self) -> Iterator[_Id]: ...
    def __next__(self) -> _Id: ...
