"""The command lines of compose.yaml's sqlite profile, run here: a job goes in by HTTP and is run by the worker."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
import yaml

from support.ports import free_port

pytestmark = pytest.mark.extended
DEPLOY = Path(__file__).parent.parent.parent / "deploy"
TOKEN = "a-token-for-this-test-alone"


@pytest.fixture
def started(tmp_path):
    """Starts a service of compose.yaml as a process, on other ports and another folder."""
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    port, metrics = free_port(), free_port()
    instead = {"8000": str(port), "0.0.0.0:9091": f"127.0.0.1:{metrics}", "0.0.0.0": "127.0.0.1"}
    processes = []

    def start(name):
        one = services[name]
        given = {"HOLDFAST_TOKEN": TOKEN, "HOLDFAST_SECRET": "", "HOLDFAST_URL": f"sqlite:///{tmp_path}/jobs.db"}
        env = {word: value for word, value in os.environ.items() if not word.startswith("HOLDFAST_")}
        env |= {word: given.get(word, value) for word, value in one["environment"].items()} | {
            "XDG_STATE_HOME": str(tmp_path / "state")
        }
        command = [instead.get(word, word) for word in one["command"]]
        with (tmp_path / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "holdfast", *command],
                cwd=DEPLOY / "example",
                env=env | {"PYTHONDONTWRITEBYTECODE": "1"},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        processes.append(process)
        return process

    yield start, f"http://127.0.0.1:{port}", f"http://127.0.0.1:{metrics}"
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(90)


def ask(url, body=None, **headers):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Authorization": f"Bearer {TOKEN}", **headers})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read()
    except OSError:
        return None, b""


def until(condition, limit=40.0):
    deadline = time.monotonic() + limit
    while not (answer := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return answer


def test_a_job_goes_in_by_the_server_and_is_run_by_the_worker(started):
    start, server, metrics = started
    start("sqlite-server")
    worker = start("sqlite-worker")
    until(lambda: ask(f"{server}/ready")[0] == 200)
    until(lambda: ask(metrics)[0] == 200)
    given = {"Idempotency-Key": "k", "Content-Type": "application/json"}
    status, body = ask(f"{server}/v1/jobs", {"type": "email.send", "payload": {"to": "a@example.com"}}, **given)
    assert status == 201
    id = json.loads(body)["id"]
    until(lambda: json.loads(ask(f"{server}/v1/jobs/{id}")[1])["status"] == "succeeded")
    until(lambda: b'holdfast_jobs_succeeded_total{job_type="email.send"} 1.0' in ask(metrics)[1])
    assert b'holdfast_jobs_submitted_total{job_type="email.send"} 1.0' in ask(f"{server}/metrics")[1]
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(90) == 0
