"""What a person sees of a Redis store from a terminal: queues and workers, and counts back to zero after kill -9."""

import json

import pytest

from support.terminal import kill, terminal

__all__ = ["terminal"]


@pytest.fixture
def at_redis(terminal, start_server):
    server = start_server(appendonly="yes", appendfsync="always")
    terminal.env["HOLDFAST_URL"] = server.url()
    return terminal


def queues(terminal) -> dict[str, dict]:
    return {queue["name"]: queue for queue in terminal.json("queues")}


def test_queues_and_workers_are_shown_and_counts_return_to_zero_after_kill_9(at_redis):
    at_redis("worker", "start", "--count", "2", "--lease", "2", "--queues", "mail")
    jobs = [{"id": f"m{n}", "command": "sleep 1000", "queue": "mail"} for n in range(2)]
    jobs += [{"id": "lonely", "command": "true", "queue": "nobody"}]
    at_redis("enqueue", "-", stdin="\n".join(map(json.dumps, jobs)))
    at_redis.until(lambda: at_redis.states() == {"running": 2, "queued": 1})
    seen = queues(at_redis)
    assert seen["mail"]["counts"]["running"] == 2
    assert seen["nobody"]["counts"]["queued"] == 1  # a queue that no worker serves is shown, with what waits
    listed = at_redis.json("worker", "list")
    assert sorted(job for one in listed for job in one["jobs"]) == ["m0", "m1"]
    assert all(one["queues"] == ["mail"] and one["node"] and one["pid"] for one in listed if one["kind"] == "worker")
    for pid in at_redis.process_table():  # supervisor, workers, nannies and jobs, all at once
        kill(pid)
    at_redis.until(lambda: not at_redis.json("worker", "list"))
    assert "There are no live workers in " in at_redis("worker", "list")
    # Whoever comes next finds what the dead ones held.
    at_redis("worker", "start", "--lease", "2", "--queues", "other")
    at_redis.until(lambda: "running" not in at_redis.states())
    assert not queues(at_redis)["mail"]["counts"].get("running")
    assert "mail" in at_redis("queues")
    assert at_redis("worker", "stop")
