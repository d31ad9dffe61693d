"""What the files of deploy/ start, and a way to start it here: on other ports, with a test's own store and token."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import yaml

from .ports import free_ports

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
TOKEN = "a-token-for-this-test-alone"
STOP_LIMIT = 90.0


def documents(path: Path) -> list[Any]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def compose() -> Any:
    (document,) = documents(DEPLOY / "compose.yaml")
    return document


def our_services() -> dict[str, Any]:
    """The services of compose.yaml that run Holdfast."""
    return {name: one for name, one in compose()["services"].items() if one["image"] == "holdfast"}


def containers() -> Iterator[tuple[str, Any, Any]]:
    """Every container of the manifests: (file, the pod's spec, the container)."""
    for path in (DEPLOY / "kubernetes").glob("*.yaml"):
        for document in documents(path):
            pod = document.get("spec", {}).get("template", {}).get("spec")
            for container in pod["containers"] if pod else ():
                yield path.name, pod, container


def commands() -> dict[str, tuple[list[str], dict[str, str]]]:
    """Every `holdfast …` that the files start, by where it stands: its words, and the variables with a value there."""
    found = {
        f"compose {name}": (one["command"], one["environment"])
        for name, one in our_services().items()
        if one.get("command")
    }
    for file, _, container in containers():
        given = {one["name"]: one["value"] for one in container.get("env", ()) if "value" in one}
        found[f"kubernetes {file}"] = container["args"], given
    for unit in (DEPLOY / "systemd").glob("*.service"):
        (start,) = re.findall(r"^ExecStart=(.*)$", unit.read_text(), re.MULTILINE)
        program, *words = shlex.split(start)
        assert program.endswith("/holdfast")
        given = dict(re.findall(r"^Environment=(\w+)=(.*)$", unit.read_text(), re.MULTILINE))
        found[f"systemd {unit.name}"] = words, given
    return found


class Deployed:
    """Processes of one server and one supervisor. `code`: the folder with the tasks."""

    def __init__(self, folder: Path, store_url: str, code: Path = DEPLOY / "example") -> None:
        self.folder, self.store_url, self.code = folder, store_url, code
        self.port, self.metrics_port = free_ports(2)
        self.processes: list[subprocess.Popen[bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def metrics_url(self) -> str:
        return f"http://127.0.0.1:{self.metrics_port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(STOP_LIMIT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def start(self, where: str) -> subprocess.Popen[bytes]:
        """Start the command that stands there."""
        words, variables = commands()[where]
        instead = {
            "8000": str(self.port),
            "9091": str(self.metrics_port),
            "0.0.0.0:9091": f"127.0.0.1:{self.metrics_port}",
            "0.0.0.0": "127.0.0.1",
        }
        ours = {"HOLDFAST_URL": self.store_url, "HOLDFAST_SECRET": "", "XDG_STATE_HOME": str(self.folder / "state")}
        ours |= {"HOLDFAST_TOKEN": TOKEN} if words[0] == "serve" else {}
        env = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        with (self.folder / f"{where.replace(' ', '-')}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "holdfast", *(instead.get(word, word) for word in words)],
                cwd=self.code,
                env=env | variables | ours | {"PYTHONDONTWRITEBYTECODE": "1"},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def submit(self, task: str, payload: Any, key: str | None = None) -> tuple[int | None, bytes]:
        """Store a job; without a key, another one at each call."""
        headers = {"Content-Type": "application/json", "Idempotency-Key": key or str(uuid.uuid4())}
        return ask(f"{self.url}/v1/jobs", {"type": task, "payload": payload}, **headers)


def ask(url: str, body: Any = None, **headers: str) -> tuple[int | None, bytes]:
    """The status and the body of the answer; no status where nobody answers."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Authorization": f"Bearer {TOKEN}", **headers})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
    except OSError:
        return None, b""
