"""Operator actions from four surfaces, with kill -9 of the server in between: each is in the audit log, none twice."""

from __future__ import annotations

import http.client
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.stores import STORES
from support.until import until

from holdfast import Holdfast
from holdfast.app import parts_of
from holdfast.client import audit
from holdfast.http import tokens
from support.served import Served
from support.terminal import Terminal

pytest.importorskip("uvicorn")
TOKEN = "a-token-of-the-environment"
ACTORS = ["cli", *["python"] * 3, *["http"] * 3, *["dashboard"] * 3]
"""The surface of each of the ten actors."""
FEWER = 5
"""An action of a command takes as long as so many of the others: its actor makes fewer."""


class Actor:
    """One actor, which pauses queues of its own. `answered` and `unanswered`: the queues."""

    def __init__(self, number: int, surface: str, count: int, *, served: Served, app: Holdfast) -> None:
        self.surface = surface
        self.name = f"actor {number}"
        self.count = max(1, count // FEWER) if surface == "cli" else count
        self.answered: list[str] = []
        self.unanswered: list[str] = []
        self.token = ""
        self._number = number
        self._served = served
        self._terminal = Terminal(served.log.parent)
        self._app = app

    def run(self) -> None:
        while len(self.answered) < self.count:
            queue = f"q-{self._number}-{len(self.answered)}-{len(self.unanswered)}"
            (self.answered if self._pause(queue) else self.unanswered).append(queue)

    def _pause(self, queue: str) -> bool:
        if self.surface == "cli":
            self._terminal("pause", queue, "--url", self._served.store_url)
        elif self.surface == "python":
            with self._app.audit.acting_as(self.name):
                self._app.sync.pause(queue)
        else:
            return self._request(queue)
        return True

    def _request(self, queue: str) -> bool:
        headers = {"Authorization": f"Bearer {self.token}"}
        if self.surface == "dashboard":
            headers["Holdfast-Client"] = "dashboard"
        connection = http.client.HTTPConnection("127.0.0.1", self._served.port, timeout=60)
        try:
            connection.request("POST", f"/v1/queues/{queue}/pause", headers=headers)
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False  # killed before or after it acted
        finally:
            connection.close()


@pytest.fixture(params=STORES)
def direct_url(request, tmp_path):
    return STORES[request.param](tmp_path)


def run(url, folder, actions: int, kills: int) -> None:
    app = Holdfast(url)
    with app.sync, Served(url, folder, token=TOKEN) as served:
        actors = [Actor(n, surface, actions, served=served, app=app) for n, surface in enumerate(ACTORS)]
        for actor in actors:
            if actor.surface in ("http", "dashboard"):
                actor.token = app.sync._run(tokens.create, parts_of(app).records, ["operate"], actor.name)
        with ThreadPoolExecutor(len(actors)) as pool:
            running = [pool.submit(actor.run) for actor in actors]
            requests = [actor for actor in actors if actor.token]
            wanted = sum(actor.count for actor in requests)
            for number in range(kills):
                goal = wanted * (number + 1) // (kills + 1)
                until(lambda goal=goal: sum(len(actor.answered) for actor in requests) >= goal, f"{goal} are answered")
                served.kill()
                served.start()
            for one in running:
                one.result()
        check(app, actors)


def check(app: Holdfast, actors: list[Actor]) -> None:
    found, cursor = [], None
    while True:
        page = app.sync.audit.list(action="pause", limit=1000, cursor=cursor)
        found += page.entries
        if (cursor := page.cursor) is None:
            break
    times = Counter(entry.target["queue"] for entry in found)
    assert not [queue for queue, number in times.items() if number > 1]
    by_queue = {entry.target["queue"]: entry for entry in found}
    for actor in actors:
        missing = [queue for queue in actor.answered if queue not in by_queue]
        assert not missing, f"{actor.name} was answered, but the log lacks {missing}"
        assert {by_queue[queue].status for queue in actor.answered} == {"done"}
        assert {by_queue[queue].surface for queue in actor.answered} == {actor.surface}
        if actor.surface != "cli":
            assert {by_queue[queue].actor for queue in actor.answered} == {actor.name}
    tried = {queue for actor in actors for queue in (*actor.answered, *actor.unanswered)}
    assert by_queue.keys() <= tried
    paused = {queue.name for queue in app.sync.stats().queues if queue.paused}
    assert paused <= by_queue.keys(), "an action without an entry"
    print(f"{len(found)} entries, {sum(len(actor.unanswered) for actor in actors)} requests without an answer,"
          f" statuses {Counter(entry.status for entry in found)}")  # fmt: skip


@pytest.mark.timeout(600)
def test_every_action_is_in_the_log_once(direct_url, tmp_path):
    run(direct_url, tmp_path, actions=5, kills=1)


@pytest.mark.extended
@pytest.mark.timeout(1800)
def test_a_thousand_actions_are_in_the_log_once(direct_url, tmp_path):
    run(direct_url, tmp_path, actions=110, kills=5)


def test_a_killed_action_is_shown_as_interrupted(tmp_path, monkeypatch):
    """The process died between intent and outcome; its entry has neither end nor error."""
    url = STORES["sqlite"](tmp_path)
    code = (
        "import os, signal, sys\n"
        "from holdfast import Holdfast\n"
        "app = Holdfast(sys.argv[1])\n"
        "for n in range(3):\n"
        "    app.sync.submit('noop', b'{}', json=True, id=f'job-{n}')\n"
        "app.on('job_cancelled', lambda _: os.kill(os.getpid(), signal.SIGKILL))\n"
        "app.sync.cancel('job-1')\n"
    )
    assert subprocess.run([sys.executable, "-c", code, url], check=False).returncode == -9
    app = Holdfast(url)
    with app.sync as jobs:
        [entry] = jobs.audit.list().entries
        assert (entry.action, entry.target, entry.status, entry.ended_at) == (
            "cancel",
            {"id": "job-1"},
            "running",
            None,
        )
        monkeypatch.setattr(audit, "INTERRUPTED_AFTER", -1.0)
        [entry] = jobs.audit.list().entries
        assert (entry.status, jobs.job("job-1").state) == ("interrupted", "cancelled")
