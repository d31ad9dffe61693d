"""A disk that fails to sync: a small library that is preloaded into processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SOURCE = Path(__file__).with_name("sync.c")


class Disk:
    """Processes started with its `env` have syncs that fail on demand. Where there is no compiler, none ever fails."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="holdfast-lab-disk-"))
        self._folder.chmod(0o777)  # a server may be another user's
        self._bad = self._folder / "bad"
        self._count = self._folder / "bad.count"
        self._count.touch()
        self._count.chmod(0o666)
        compiler = shutil.which("cc") or shutil.which("gcc")
        library = self._folder / "sync.so"
        self.can_fail = compiler is not None and os.uname().sysname == "Linux"
        self.env: dict[str, str] = {}
        if compiler is not None and self.can_fail:
            subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, SOURCE], check=True)
            self.env = {"LD_PRELOAD": str(library), "LAB_SYNC_FAILS": str(self._bad)}

    @contextmanager
    def failing(self, which: str = "all") -> Iterator[None]:
        """Syncs fail: `all`, those of `folders`, or the next one (`once`)."""
        aside = self._folder / "aside"
        aside.write_text(which)
        aside.rename(self._bad)
        try:
            yield
        finally:
            self._bad.unlink(missing_ok=True)

    def failures(self) -> int:
        """Syncs that have failed so far."""
        return self._count.stat().st_size

    def remove(self) -> None:
        shutil.rmtree(self._folder)
