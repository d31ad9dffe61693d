"""Where a run can take place: a store's address, its server if it has one, and what must not be left there.

Another kind of store joins with one line in PLACES; its place needs `url()`, and the rest where it has it.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import time
from pathlib import Path
from typing import Any

from ..process import Process
from ..until import until
from .member import POLL

ROOT = Path(__file__).resolve().parents[2]


class Place:
    """A place without a server."""

    has_server = False
    port = 0
    wall_clock_is_shared = True
    """Whether the store's time is one clock, whatever clocks the processes have."""

    sweep = 4.5 * POLL + 1.0
    """Seconds within which a new process looks for lost claims; a second more, on a machine that is busy."""
    all_recorded = True
    """Whether nobody but the processes of the round ends claims."""
    locks = False
    """Whether an ask under way may hide jobs from others."""
    many_jobs = True
    """Whether there are rounds for the sake of many jobs."""

    def url(self, folder: Path, round_: int, port: int | None = None) -> str:
        """Where a round takes place, by way of `port` where there is a server."""
        raise NotImplementedError

    def kill(self) -> None:
        """kill -9 of the server."""

    def start(self) -> None:
        """Start the server, or start it again."""

    def leftovers(self, folder: Path, round_: int) -> list[str]:
        """What should not be there when everybody has gone."""
        return []

    def remove(self) -> None:
        """The end."""


class Sqlite(Place):
    wall_clock_is_shared = False

    def url(self, folder: Path, round_: int, port: int | None = None) -> str:
        return f"sqlite:///{folder}/jobs.db"

    def leftovers(self, folder: Path, round_: int) -> list[str]:
        connection = sqlite3.connect(folder / "jobs.db", timeout=5.0)
        try:
            said = connection.execute("PRAGMA integrity_check").fetchall()
            connection.execute("BEGIN EXCLUSIVE")  # nobody holds a lock any more
            connection.execute("ROLLBACK")
        except sqlite3.OperationalError as error:
            return [f"a lock: {error}"]
        finally:
            connection.close()
        known = {"jobs.db", "jobs.db-wal", "jobs.db-shm", "jobs.db-lock"}
        files = {file.name for file in folder.iterdir() if file.name.startswith("jobs.db")}
        return [f"a damaged file: {said}"] * (said != [("ok",)]) + [f"file {name}" for name in sorted(files - known)]


class Postgres(Place):
    has_server = True
    locks = True

    def __init__(self) -> None:
        sys.path.insert(0, str(ROOT / "tests"))
        from support.postgres import DURABLE, PostgresServer

        self.server = PostgresServer(options=DURABLE)

    @property
    def port(self) -> int:
        return self.server.port

    def url(self, folder: Path, round_: int, port: int | None = None) -> str:
        return f"postgresql://postgres@127.0.0.1:{port or self.port}/postgres?schema=lab{round_}"

    def kill(self) -> None:
        self.server.kill()

    def start(self) -> None:
        self.server.start()

    def leftovers(self, folder: Path, round_: int) -> list[str]:
        return asyncio.run(self._left(round_))

    async def _left(self, round_: int) -> list[str]:
        import asyncpg

        connection = await asyncpg.connect(f"postgresql://postgres@127.0.0.1:{self.port}/postgres")
        try:
            for _ in range(100):  # the server notices a closed connection in its own time
                others = await connection.fetch(
                    "SELECT pid, state, query FROM pg_stat_activity"
                    " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
                )
                if not others:
                    break
                await asyncio.sleep(0.1)
            locks = await connection.fetch(
                "SELECT locktype, mode FROM pg_locks WHERE pid <> pg_backend_pid() AND locktype = 'advisory'"
            )
            await connection.execute(f"DROP SCHEMA IF EXISTS lab{round_} CASCADE")
        finally:
            await connection.close()
        return [f"connection {dict(row)}" for row in others] + [f"lock {dict(row)}" for row in locks]

    def remove(self) -> None:
        self.server.remove()


class Redis(Place):
    has_server = True

    def __init__(self) -> None:
        sys.path.insert(0, str(ROOT / "tests"))
        from support.redis import Server, valkey_binary

        self.server = Server(valkey_binary(), appendonly="yes", appendfsync="always")

    @property
    def port(self) -> int:
        return self.server.port

    def url(self, folder: Path, round_: int, port: int | None = None) -> str:
        return f"redis://127.0.0.1:{port or self.port}?prefix=lab{round_}"

    def kill(self) -> None:
        self.server.kill()

    def start(self) -> None:
        self.server.start()

    def leftovers(self, folder: Path, round_: int) -> list[str]:
        sys.path.insert(0, str(ROOT / "tests" / "redis"))
        from key_census import strays

        from holdfast.core.clock import SystemClock
        from holdfast.store.open import open_store

        async def look() -> list[str]:
            store: Any = open_store(self.url(folder, round_), SystemClock())
            await store.open()
            try:
                return await strays(store, self.server)
            finally:
                await store.close()

        left = asyncio.run(look())
        self.server.clear(f"lab{round_}")
        return left

    def remove(self) -> None:
        self.server.remove()


class Folder(Place):
    """A bucket, in a folder."""

    wall_clock_is_shared = False
    many_jobs = False

    def url(self, folder: Path, round_: int, port: int | None = None) -> str:
        (folder / "bucket").mkdir(exist_ok=True)
        return f"file://{folder}/bucket"


class Remote(Place):
    """Another Holdfast's `serve`, on a SQLite file. It looks for lost claims itself."""

    has_server = True
    sweep = 5.0 + 1.5 * 1.0 + 1.0  # a server that has just started lets the living beat first
    all_recorded = False

    def __init__(self) -> None:
        sys.path.insert(0, str(ROOT / "tests"))
        from support.postgres import free_port

        self.port = free_port()
        self.folder: Path | None = None
        self.server: Process | None = None
        self.starts = 0

    def url(self, folder: Path, round_: int, port: int | None = None) -> str:
        if folder != self.folder:
            self.kill()
            self.folder = folder
            self.start()
        return f"http://127.0.0.1:{port or self.port}"

    def start(self) -> None:
        if self.folder is None:
            return  # it starts with the first round, on its file
        self.starts += 1
        words = ["serve", "--url", f"sqlite:///{self.folder}/jobs.db", "--port", str(self.port)]
        log = self.folder / f"serve-{self.starts}.log"
        self.server = server = Process("serve", "holdfast", words, log)
        until(lambda: b"Serving " in log.read_bytes() or not server.running, "the server serves")

    def kill(self) -> None:
        if self.server is not None:
            self.server.close()

    def leftovers(self, folder: Path, round_: int) -> list[str]:
        self.kill()
        return Sqlite().leftovers(folder, round_)

    def remove(self) -> None:
        self.kill()


PLACES: dict[str, type[Place]] = {
    "sqlite": Sqlite,
    "postgres": Postgres,
    "redis": Redis,
    "bucket": Folder,
    "remote": Remote,
}


class Own(Place):
    """A store of the reader's own: nobody restarts its server, and nobody cleans up behind a round."""

    def __init__(self, url: str) -> None:
        if "{round}" not in url:
            sys.exit(f"{url}: say {{round}} where each round is to have a place of its own, as in ?schema=lab{{round}}")
        self._url = url
        self._first = int(time.time())
        if url.startswith("http"):
            self.sweep, self.all_recorded = Remote.sweep, Remote.all_recorded
        else:
            self.wall_clock_is_shared = url.startswith(("postgres", "redis"))
        self.locks = url.startswith(("postgres", "http"))

    def url(self, folder: Path, round_: int, port: int | None = None) -> str:
        return self._url.replace("{round}", str(self._first + round_))


def place_of(store: str) -> Place:
    """By its name, or by the URL of one's own."""
    return PLACES[store]() if store in PLACES else Own(store)
