"""A store that goes away at a chosen call, and comes back on demand."""

from __future__ import annotations

from typing import Any

from holdfast import OutcomeUnknown, StoreUnavailable
from holdfast.store.protocol import Store

WRITES = ("write", "put_record")
CALLS = (*WRITES, "get", "find", "records", "now", "stats", "holders", "expired", "tidy", "transitions", "minutes")


class Failing:
    """Hands everything to another store, until `calls_left` calls were made: then it is away.

    `loses_answers`: the call at which it goes away is made all the same, if it writes; nobody hears of it.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.calls_left: int | None = None
        self.loses_answers = False
        self.made = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return self._watched(name, found) if name in CALLS else found

    def _watched(self, name: str, call: Any) -> Any:
        async def made(*args: Any, **kwargs: Any) -> Any:
            self.made += 1
            if self.calls_left is None:
                return await call(*args, **kwargs)
            self.calls_left -= 1
            if self.calls_left >= 0:
                return await call(*args, **kwargs)
            if name in WRITES and self.loses_answers:
                if self.calls_left == -1:
                    await call(*args, **kwargs)
                raise OutcomeUnknown("the answer was lost")
            raise StoreUnavailable("the store is away")

        return made
