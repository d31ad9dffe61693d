"""The settings in the store, shared by all processes that use it, each checked when it is set."""

from __future__ import annotations

from typing import Any

import msgspec

from ..core.settings import ALIASES, SAME, parse_stored, stored_name
from ..core.writes import Writes
from ..observe.actors import note_before
from ..store.worker_writes import RecordKind, WorkerWrites
from .audited import audited
from .records import Records
from .runtime import Runtime
from .session import readable

WRITES = WorkerWrites(records=(RecordKind("config"),))


class Config:
    """`max_retries`, `backoff_base`, … in the store, below the environment and above the defaults."""

    def __init__(self, runtime: Runtime, records: Records) -> None:
        self._runtime = runtime
        self._records = records

    @audited("config.set", shown=("value",))
    async def set(self, name: str, value: Any) -> tuple[str, Any]:
        """Store a setting; returns the name and value as stored."""
        key, checked = parse_stored(name, value)
        note_before(value=(await self.list()).get(key))
        with Writes(f"setting {key}", "set it again") as writes:
            await self._records.put("config", key, msgspec.json.encode(checked))
            writes.made += 1
            for other in SAME.get(key, ()):
                if other in await self.list():
                    await self._records.put("config", other, None)
        return key, checked

    async def get(self, name: str) -> Any:
        """The stored value, or None if there is none; ConfigError for an unknown setting."""
        key, kept = stored_name(name), await self.list()
        return next((kept[name] for name in (key, *_aliases(key)) if name in kept), None)

    @audited("config.unset")
    async def unset(self, name: str) -> bool:
        """Remove a stored setting; False if it was not set."""
        key, kept = stored_name(name), await self._records.all("config")
        if not any(one in kept for one in (key, *_aliases(key))):
            return False
        note_before(value=readable(kept).get(key))
        with Writes(f"the removal of setting {key}", "remove it again") as writes:
            for one in (key, *_aliases(key)):
                await self._records.put("config", one, None)
                writes.made += 1
        return True

    async def list(self) -> dict[str, Any]:
        """All settings in the store."""
        return readable(await self._records.all("config"))


def _aliases(key: str) -> list[str]:
    """Other names of the same setting."""
    return [name for name, target in [*ALIASES.items(), *((v, k) for k, v in ALIASES.items())] if target == key]
