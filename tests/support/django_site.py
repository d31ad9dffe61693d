"""The Django project of `examples/django`: its commands and servers as processes of their own, on a database."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .ports import free_port

ROOT = Path(__file__).resolve().parents[2]
PROJECT = ROOT / "examples" / "django"
START_LIMIT = 120.0


class Site:
    """The project on one database: a Postgres URL, or else a SQLite file in a folder."""

    def __init__(self, folder: Path, postgres: str | None = None) -> None:
        kept = {
            name: text for name, text in os.environ.items() if not name.startswith(("HOLDFAST_", "SHOP_", "DJANGO_"))
        }
        self.environment = {
            **kept,
            "SHOP_FILE": str(folder / "shop.sqlite3"),
            "DJANGO_SETTINGS_MODULE": "config.settings",
            "PYTHONPATH": str(ROOT / "tests" / "contrib"),
        }
        if postgres is not None:
            self.environment["SHOP_DATABASE"] = postgres
        self._log = folder / "server.log"

    def manage(self, *words: str) -> str:
        """What `manage.py` prints; fails with it where the command fails."""
        command = [sys.executable, "-W", "error", "manage.py", *words]
        done = subprocess.run(command, cwd=PROJECT, env=self.environment, text=True, capture_output=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    @contextmanager
    def serving(self, *command: str) -> Iterator[str]:
        """The address of a server, started by a module with arguments in which PORT is the port."""
        port = str(free_port())
        words = [word.replace("PORT", port) for word in command]
        with self._log.open("wb") as log:
            server = subprocess.Popen(
                [sys.executable, "-m", *words], cwd=PROJECT, env=self.environment, stdout=log, stderr=log
            )
        address = f"http://127.0.0.1:{port}"
        try:
            deadline = time.monotonic() + START_LIMIT
            while not self._answers(server, address):
                assert time.monotonic() < deadline, f"not within {START_LIMIT} s:\n{self._log.read_text()}"
                time.sleep(0.05)
            yield address
        finally:
            server.terminate()
            server.wait(30)

    def _answers(self, server: subprocess.Popen[bytes], address: str) -> bool:
        assert server.poll() is None, self._log.read_text()
        try:
            with urllib.request.urlopen(address, timeout=5):
                return True
        except (urllib.error.URLError, OSError):
            return False
