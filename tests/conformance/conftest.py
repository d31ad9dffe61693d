"""These tests write to a file system in memory, if it is large enough: durability is tested elsewhere."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")
ENOUGH = 2**31
"""Bytes: servers keep their files there too."""


@pytest.fixture(autouse=True)
def in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ENOUGH:
        monkeypatch.setattr(tempfile, "tempdir", str(MEMORY))


@pytest.fixture
def tmp_path(in_memory: None) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="holdfast-", ignore_cleanup_errors=True) as made:
        yield Path(made)
