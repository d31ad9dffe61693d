"""A primary, its replicas, and the sentinels that watch them: real servers on loopback."""

from __future__ import annotations

import time
from pathlib import Path

from support.redis import START_LIMIT, Server


class Sentinels:
    """`replicas` replicas of one primary, and `number` sentinels that agree on `mymaster`."""

    def __init__(self, binary: str, folder: Path, *, replicas: int = 2, number: int = 3, **options: str) -> None:
        folder.mkdir(exist_ok=True)
        options["repl_diskless_sync_delay"] = "0"
        self.servers = [Server(binary, folder / f"server-{n}", **options) for n in range(replicas + 1)]
        self.sentinels = [Server(binary, folder / f"sentinel-{n}") for n in range(number)]

    def start(self) -> Sentinels:
        primary, *replicas = self.servers
        primary.start()
        for replica in replicas:
            replica.options["replicaof"] = f"127.0.0.1 {primary.port}"
            replica.start()
        _until(lambda: primary.call("INFO", "replication").count(b"state=online") == len(replicas))
        quorum = len(self.sentinels) // 2 + 1
        for sentinel in self.sentinels:
            configuration = sentinel.folder / "sentinel.conf"
            configuration.write_text(
                f"port {sentinel.port}\n"
                f"sentinel monitor mymaster 127.0.0.1 {primary.port} {quorum}\n"
                "sentinel down-after-milliseconds mymaster 500\n"
                "sentinel failover-timeout mymaster 5000\n"
            )
            sentinel.arguments, sentinel.options = (str(configuration), "--sentinel"), {}
            sentinel.start()
        known = f"slaves={len(replicas)},sentinels={len(self.sentinels)}".encode()
        _until(lambda: all(known in each.call("INFO", "sentinel") for each in self.sentinels))
        _until(lambda: all(self._knows_its_replicas(each) for each in self.sentinels))
        return self

    def _knows_its_replicas(self, sentinel: Server) -> bool:
        said = [b" ".join(each) for each in sentinel.call("SENTINEL", "REPLICAS", "mymaster")]
        return all(b"master-link-status ok" in each for each in said)

    def url(self, prefix: str = "test", **options: str) -> str:
        hosts = ",".join(f"127.0.0.1:{each.port}" for each in self.sentinels)
        query = "&".join(f"{name}={value}" for name, value in ({"prefix": prefix} | options).items())
        return f"redis+sentinel://{hosts}/mymaster?{query}"

    def primary(self) -> Server:
        """The one that the first sentinel names."""
        port = int(self.sentinels[0].call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster")[1])
        return next(server for server in self.servers if server.port == port)

    def remove(self) -> None:
        for each in (*self.sentinels, *self.servers):
            each.remove()


def _until(condition) -> None:
    deadline = time.monotonic() + START_LIMIT
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError("the sentinels and servers do not find each other")
        time.sleep(0.02)
