"""asyncpg, imported in one place because it has no types."""

from __future__ import annotations

from importlib import import_module
from typing import Any

asyncpg: Any = import_module("asyncpg")
