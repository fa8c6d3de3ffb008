"""The exceptions. Which code is raised as which class stands in the compiled part (`FAMILIES`)."""

from typing import Optional


class KeymillError(Exception):
    """What every verb raises: a code, one line that says what was seen and what to do, and when to try again.

    `code` is the name that every language prints, as "STORE_UNAVAILABLE"; `keymill.CODES` has the numbers.
    `retry_after` is in seconds, or None where no time is known.
    """

    def __init__(self, code: str, message: str, retry_after: Optional[float] = None) -> None:
        super().__init__(code, message, retry_after)
        self.code = code
        self.message = message
        self.retry_after = retry_after

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class ArgumentError(KeymillError, ValueError, TypeError):
    """An argument of the call is wrong: its type, its size, a buffer that does not serve."""


class ConfigError(KeymillError, ValueError):
    """A mill's configuration or a source's spec is wrong; the message lists what is valid."""


class StoreError(KeymillError):
    """The store does not answer, refuses, went backwards, or would lose numbers."""


class ClockError(KeymillError):
    """This machine's clock is behind what has already been issued."""


class ExhaustedError(KeymillError):
    """The numbers of a source, a pattern or a layout are used up; nothing wraps."""


class ClosedError(KeymillError):
    """The mill was closed, or belongs to the process this one was forked from."""


class DeadlineError(KeymillError):
    """Nothing came within the source's deadline."""


for _class in (KeymillError, *KeymillError.__subclasses__()):
    _class.__module__ = "keymill"
