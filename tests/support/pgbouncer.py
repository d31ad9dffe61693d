"""A real pgbouncer in transaction mode before a test's Postgres: from the path, or fetched without root."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from .ports import free_port
from .postgres import PostgresServer, as_nobody

START_LIMIT = 60.0
FETCHED = Path(__file__).parent.parent.parent / ".venv" / "pgbouncer-debian"
PACKAGES = ("pgbouncer", "libevent-2.1-7", "libc-ares2")


def binary() -> str | None:
    """pgbouncer on the path, or fetched before by `python -m support.pgbouncer` (in tests/)."""
    fetched = FETCHED / "usr" / "sbin" / "pgbouncer"
    return shutil.which("pgbouncer") or (str(fetched) if fetched.exists() else None)


def fetch() -> None:
    """Debian's package and what it links to, unpacked into a folder of ours: no root, nothing installed."""
    work = FETCHED.with_name("pgbouncer-debian-packages")
    for folder in ("state", "lists/partial", "cache/archives/partial"):
        (work / folder).mkdir(parents=True, exist_ok=True)
    places = {"Dir::State": "state", "Dir::State::lists": "lists", "Dir::Cache": "cache"}
    options = [word for name, folder in places.items() for word in ("-o", f"{name}={work / folder}")]
    apt = ["apt-get", *options, "-o", f"APT::Sandbox::User={getpass.getuser()}", "-qq"]
    subprocess.run([*apt, "update"], check=True)
    subprocess.run([*apt, "download", *PACKAGES], cwd=work, check=True)
    for package in work.glob("*.deb"):
        subprocess.run(["dpkg", "-x", package, FETCHED], check=True)
    shutil.rmtree(work)
    print(binary())


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
        libraries = ":".join(str(folder) for folder in FETCHED.glob("usr/lib/*-linux-gnu*"))
        environment = os.environ | ({"LD_LIBRARY_PATH": libraries} if libraries else {})
        self.process = subprocess.Popen(
            [*as_nobody(), binary() or "pgbouncer", self._settings], stdout=log, stderr=log, env=environment
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
        self.process.wait(10)

    def remove(self) -> None:
        self._end()
        shutil.rmtree(self.folder, ignore_errors=True)


if __name__ == "__main__":
    fetch()
