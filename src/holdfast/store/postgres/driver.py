"""The driver, imported in one place: it brings no types of its own."""

from __future__ import annotations

from importlib import import_module
from typing import Any

asyncpg: Any = import_module("asyncpg")
