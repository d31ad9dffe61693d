"""Operations that consist of several writes, and the error if the store fails between two of them."""

from __future__ import annotations

from typing import Self

from .errors import ConfigError, OutcomeUnknown, StoreUnavailable


class Writes:
    """An operation of several writes. After the first one, `StoreUnavailable` ("nothing was written") would be wrong.

    `made` counts them; from then on such an error leaves the block as OutcomeUnknown, with advice on what to do next.
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
            message = f"{self._what} was written at least in part; {self._then}. The step that failed: {error}"
            raise OutcomeUnknown(message, retry_safe=self._retry_safe) from error
