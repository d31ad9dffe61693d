"""A real pgbouncer in transaction mode before a test's Postgres: from the path, or fetched without root."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from .fetch import environment, unpacked
from .ports import free_port
from .postgres import PostgresServer, as_nobody

START_LIMIT = 60.0


def binary() -> str | None:
    """pgbouncer on the path, or fetched before by `python tests/support/fetch.py`."""
    return shutil.which("pgbouncer") or unpacked("pgbouncer", "usr/sbin/pgbouncer")


class PgBouncer:
    """One pgbouncer with two server connections for everybody, so that clients really share them."""

    def __init__(self, server: PostgresServer, mode: str = "transaction", **options: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-bouncer-"))
        self.port = free_port()
        settings = self.folder / "pgbouncer.ini"
        settings.write_text(
            # `auth_type = any` signs everybody in as one user; the server trusts loopback.
            f"[databases]\n* = host=127.0.0.1 port={server.port} user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
            f"listen_port = {self.port}\nauth_type = any\nunix_socket_dir =\npool_mode = {mode}\n"
            f"default_pool_size = {2 if mode == 'transaction' else 50}\nmax_client_conn = 200\nserver_login_retry = 1\n"
            + "".join(f"{name} = {value}\n" for name, value in options.items())
        )
        self._settings = settings
        self._start()

    def _start(self) -> None:
        log = open(self.folder / "log", "ab")  # noqa: SIM115  # the child keeps it
        program = binary() or "pgbouncer"
        self.process = subprocess.Popen(
            [*as_nobody(), program, self._settings], stdout=log, stderr=log, env=environment(program)
        )
        log.close()
        self._wait_until_ready()

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_LIMIT
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                break
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                time.sleep(0.02)
            else:
                return
        raise RuntimeError(f"pgbouncer did not start: {(self.folder / 'log').read_text()[-2000:]}")

    def restart(self) -> None:
        """Every connection is cut; then there is one again."""
        self._end()
        self._start()

    def _end(self) -> None:
        self.process.terminate()
        self.process.wait(90)

    def remove(self) -> None:
        self._end()
        shutil.rmtree(self.folder, ignore_errors=True)
