"""The bucket protocol: four methods. Any object that has them can be used.

A put creates a whole new object or none; nothing is ever overwritten. After an error of a put other than NotWritten,
the object may exist: the caller reads it to find out.
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
    """A put failed and certainly created nothing."""


class Refused(NotWritten, StoreRefused):
    """The bucket rejects the write: it is read-only, or the credentials lack a permission. Nothing was created."""


@runtime_checkable
class Bucket(Protocol):
    """Immutable objects by key. Keys are ASCII, with slashes."""

    async def get(self, key: str) -> bytes | None:
        """The whole object; None if it is missing."""
        ...

    async def put_if_absent(self, key: str, data: bytes) -> bool:
        """Create the object; False if it exists. Must be atomic among concurrent callers."""
        ...

    async def list(self, prefix: str, after: str | None = None) -> Sequence[Listed]:
        """All objects whose keys begin with `prefix` and sort after `after`, in the order of their keys.

        Must include every object whose put returned before this call.
        """
        ...

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete these objects; a missing one is no error."""
        ...
