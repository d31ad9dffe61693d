"""Files that cannot be looked at for a while."""

from __future__ import annotations

import errno
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

PASSING = [errno.EACCES, errno.EIO, errno.ESTALE, errno.ETIMEDOUT]
"""Errors that say nothing about what is there."""


@contextmanager
def unseen(name: str, number: int) -> Generator[None]:
    """Inside the block, a look at a file of that name fails with that error."""
    stat = Path.stat

    def fail(self: Path, **options: bool) -> os.stat_result:
        if self.name == name:
            raise OSError(number, os.strerror(number))
        return stat(self, **options)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Path, "stat", fail)
        yield
