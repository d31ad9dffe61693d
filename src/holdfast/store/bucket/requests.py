"""Counts every request to the bucket: providers bill per request."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from ...core.errors import HoldfastError, StoreUnavailable
from .log_format import Spent
from .protocol import Bucket, Listed, NotWritten

ATTEMPTS = (0.05, 0.2, 0.5, 1.0, 2.0)
"""Seconds after each attempt to write an object outside the log."""
LISTING_PAGE = 1000
"""Objects of one page of a listing, which is one request."""


class Counted:
    """A bucket that counts its requests."""

    def __init__(self, bucket: Bucket) -> None:
        self.inner = bucket
        self.spent = Spent()

    def __str__(self) -> str:
        return str(self.inner)

    def take(self) -> Spent:
        """The requests since the last call."""
        spent, self.spent = self.spent, Spent()
        return spent

    async def get(self, key: str) -> bytes | None:
        self.spent.gets += 1
        with self._reading():
            return await self.inner.get(key)

    async def put_if_absent(self, key: str, data: bytes) -> bool:
        self.spent.puts += 1
        return await self.inner.put_if_absent(key, data)

    async def list(self, prefix: str, after: str | None = None) -> Sequence[Listed]:
        with self._reading():
            found = await self.inner.list(prefix, after)
        self.spent.lists += 1 + len(found) // LISTING_PAGE
        return found

    @contextmanager
    def _reading(self) -> Generator[None]:
        """Translate any error of a driver: a read writes nothing."""
        try:
            yield
        except HoldfastError:
            raise
        except Exception as error:
            raise StoreUnavailable(
                f"{self} cannot be read: {type(error).__name__}: {error}; check that this process can reach it and may"
                " read it"
            ) from error

    async def put_surely(self, key: str, data: bytes) -> None:
        """Create an object that only this process writes; NotWritten if it may be missing after all attempts."""
        last: Exception | None = None
        for pause in ATTEMPTS:
            try:
                if await self.put_if_absent(key, data) or await self.get(key) is not None:
                    return
            except Exception as error:  # noqa: BLE001  # it may exist nevertheless: the next put returns False
                last = error
            await asyncio.sleep(pause)
        why = "" if last is None else f" ({last})"
        raise NotWritten(
            f"object {key} could not be written to {self}{why}; no job was changed. Check the bucket, then try again"
        ) from last

    async def delete(self, keys: Sequence[str]) -> None:
        self.spent.deletes += len(keys)
        await self.inner.delete(keys)
