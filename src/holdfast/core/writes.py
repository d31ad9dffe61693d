"""Operations made of several writes, and what is true of them when the store goes away between two."""

from __future__ import annotations

from typing import Self

from .errors import ConfigError, OutcomeUnknown, StoreUnavailable


class Writes:
    """An operation made of several writes. Once one is made, `StoreUnavailable` ("nothing was written") would be false.

    `made` counts them; from then on an error that denies them leaves the block as OutcomeUnknown, with what to do next.
    """

    def __init__(self, what: str, then: str, *, made: int = 0, retry_safe: bool = True) -> None:
        self._what = what
        self._then = then
        self._retry_safe = retry_safe
        self.made = made

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if self.made and isinstance(error, StoreUnavailable | ConfigError):
            said = f"{self._what} is written in part: {error}; {self._then}"
            raise OutcomeUnknown(said, retry_safe=self._retry_safe) from error
