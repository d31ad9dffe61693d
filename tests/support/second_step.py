"""The schema of a later release: one step more than this code has, so that migrations are tested before one is due."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest


@contextmanager
def second_step(schema: ModuleType, script: str) -> Iterator[None]:
    """Inside, a store's module `schema` knows this step too, and works with its version."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        migrations = Path(folder) / "migrations"
        shutil.copytree(schema.MIGRATIONS, migrations)
        number = schema.LATEST + 1
        (migrations / f"{number:04}_next.sql").write_text(script, encoding="utf-8")
        patch.setattr(schema, "MIGRATIONS", migrations)
        patch.setattr(schema, "LATEST", number)
        yield
