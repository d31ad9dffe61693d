"""The bucket protocol: four methods. Any object that has them can be used.

A put creates a new object whole, or does not; nothing is ever overwritten. What a put raises says nothing about
whether it happened, unless it is NotWritten: the caller reads the object to know.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import msgspec

from ...core.errors import StoreRefused, StoreUnavailable


class Listed(msgspec.Struct, frozen=True, gc=False):
    """One object of a listing."""

    key: str
    modified: int
    """When it was created, in microseconds, by the bucket's own clock."""
    size: int = 0


class NotWritten(StoreUnavailable):
    """A put that failed, and surely created nothing."""


class Refused(NotWritten, StoreRefused):
    """The bucket does not allow it: read-only, or credentials that may not. Nothing was created."""


@runtime_checkable
class Bucket(Protocol):
    """A flat place of immutable objects, by key. Keys are ASCII, with slashes."""

    async def get(self, key: str) -> bytes | None:
        """The whole object; None where there is none."""
        ...

    async def put_if_absent(self, key: str, data: bytes) -> bool:
        """Create the object; False where there is one. Must decide atomically among concurrent callers."""
        ...

    async def list(self, prefix: str, after: str | None = None) -> Sequence[Listed]:
        """All objects whose keys begin with `prefix` and come behind `after`, in the order of their keys.

        Must show every object whose put has returned before it was called.
        """
        ...

    async def delete(self, keys: Sequence[str]) -> None:
        """Remove these objects; one that is not there is no error."""
        ...
