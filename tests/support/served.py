"""`holdfast serve` in a process of its own, to be used, killed and started again on the same port."""

from __future__ import annotations

import os
import signal
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Self

from lab.fork_server import Forked

from .forks import fork_server
from .ports import free_port

START_LIMIT = 60.0


class Served:
    """A server in front of a store. Stopped by pid, whatever happens."""

    def __init__(self, store_url: str, folder: Path, *, port: int = 0, token: str | None = None) -> None:
        self.store_url = store_url
        self.port = port or free_port()
        self.token = token
        self.log = folder / f"serve-{self.port}.log"
        self.process: Forked | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> Self:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        if self.token is not None:
            environment["HOLDFAST_TOKEN"] = self.token
        words = ["serve", "--url", self.store_url, "--port", str(self.port)]
        with self.log.open("ab") as log:
            self.process = fork_server().popen("holdfast", words, cwd=self.log.parent, env=environment, output=log)
        deadline = time.monotonic() + START_LIMIT
        while not self._ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the server does not start:\n{self.log.read_text()[-3000:]}")
            time.sleep(0.02)
        return self

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/ready", timeout=1.0) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """As a crash would: SIGKILL."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
