"""The store's own settings: kept there for everybody who uses it, each checked when it is set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from .settings import parse_stored, stored_name

if TYPE_CHECKING:
    from .app import Holdfast


class Config:
    """`max_retries`, `backoff_base`, … in the store, below the environment and above the defaults."""

    def __init__(self, app: Holdfast) -> None:
        self._app = app

    async def set(self, name: str, value: Any) -> tuple[str, Any]:
        """Keep a setting in the store; the name and value as they were understood."""
        key, checked = parse_stored(name, value)
        await self._app.put_record("config", key, msgspec.json.encode(checked))
        return key, checked

    async def get(self, name: str) -> Any:
        """The stored value, or None where there is none; ConfigError for a name that is no setting."""
        return (await self.list()).get(stored_name(name))

    async def unset(self, name: str) -> None:
        """Forget a stored setting."""
        await self._app.put_record("config", stored_name(name), None)

    async def list(self) -> dict[str, Any]:
        """Everything that is set in the store."""
        kept = await self._app.records("config")
        return {name: msgspec.json.decode(one.value) for name, one in sorted(kept.items())}
