"""A real Prometheus and its promtool for tests: from the path, or Debian's, fetched without root."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, Self

from .fetch import unpacked
from .ports import free_port

START_LIMIT = 60.0


def binary(name: str = "prometheus") -> str | None:
    return shutil.which(name) or unpacked("prometheus", f"usr/bin/{name}")


def promtool(*words: str | Path) -> str:
    """What promtool prints, when it accepts what it is given."""
    done = subprocess.run([binary("promtool"), *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


class Prometheus:
    """One server, with a folder of its own. `settings`: its configuration file."""

    def __init__(self, folder: Path, settings: Path) -> None:
        self.folder, self.settings = folder, settings
        self.port = free_port()

    def __enter__(self) -> Self:
        words = [
            f"--config.file={self.settings}",
            f"--storage.tsdb.path={self.folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--log.level=warn",
        ]
        self._log = self.folder / "prometheus.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [binary() or "prometheus", *words], cwd=self.folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        deadline = time.monotonic() + START_LIMIT
        while not self._ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"Prometheus does not start:\n{self._log.read_text()[-3000:]}")
            time.sleep(0.05)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(90)

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=2) as answer:
                return answer.status == 200
        except OSError:
            return False

    def get(self, path: str, **parameters: str) -> Any:
        """The data of an answer of its HTTP API; an expression that it refuses raises HTTPError."""
        query = urllib.parse.urlencode({name.replace("match", "match[]"): value for name, value in parameters.items()})
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/{path}?{query}", timeout=30) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The samples of an expression, now."""
        return self.get("query", query=expression)["result"]

    def firing(self) -> set[str]:
        """The names of the alerts that fire."""
        return {one["labels"]["alertname"] for one in self.get("alerts")["alerts"] if one["state"] == "firing"}
