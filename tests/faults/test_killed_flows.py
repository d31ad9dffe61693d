"""A graph of jobs under kill -9: every node succeeds once, after its parents; a broken graph is finished by a retry."""

from __future__ import annotations

import os
import signal

import pytest
from support.flow_tasks import mended
from support.until import until

from holdfast import Flow
from holdfast.app import parts_of
from holdfast.core.job import TERMINAL
from holdfast.core.retry import Backoff

NODES = int(os.environ.get("HOLDFAST_JOBS", "150"))
"""10,000 is what the promise is held to."""
KILLS = max(2, NODES // 150)
LIMIT = 120 + NODES / 10
"""Seconds to wait: where a job died early, nothing but what was not run ends for a while."""
BACKENDS = """
SELECT pid, state, wait_event_type, wait_event, now() - xact_start, pg_blocking_pids(pid), left(query, 100)
FROM pg_stat_activity WHERE backend_type = 'client backend'
"""
"""What every connection of a Postgres server does, and which ones it waits for."""


@pytest.mark.timeout(300 + NODES // 5)
def test_every_node_succeeds_once_and_after_its_parents(look, processes, journal, chance):
    look.sync.config.set("max_crashes", 1000)
    flow = Flow("graph")
    task = parts_of(look.app).registry.tasks["node"].using(max_attempts=0, retry=Backoff(base=0, jitter=0))
    doomed = {chance.randrange(NODES) for _ in range(max(1, NODES // 100))}
    parents: list[list[int]] = []
    for number in range(NODES):
        above = sorted(
            {chance.randrange(max(0, number - 40), number) for _ in range(chance.choice((0, 1, 2, 3)))}
            if number
            else ()
        )
        parents.append(above)
        flow.add(task, [flow.nodes[each] for each in above], number in doomed)
    handle = look.sync.enqueue_flow(flow)
    workers = [processes.worker() for _ in range(2)]
    for kill in range(KILLS):
        before = NODES * (kill + 1) // (KILLS + 4)
        until(lambda: journal.count("end") >= before or ended(look, handle), f"{before} nodes are done", LIMIT)  # noqa: B023
        victim = chance.randrange(2)
        workers[victim].kill()
        workers[victim] = processes.worker()
    until(lambda: ended(look, handle), "the flow has ended", LIMIT, lambda: unfinished(look, handle, processes))

    status = handle.status()
    print(f"{NODES} nodes under {KILLS} kills: {status.counts}")
    assert status.state == "dead", status
    assert status.counts["dead"] + status.counts.get("cancelled", 0) + status.counts.get("succeeded", 0) == NODES
    mended(journal).touch()
    assert handle.retry() == NODES - status.counts.get("succeeded", 0)
    until(lambda: ended(look, handle), "the flow has ended again", LIMIT, lambda: unfinished(look, handle, processes))

    assert (handle.status().state, handle.status().counts) == ("succeeded", {"succeeded": NODES})
    jobs = handle.jobs()
    expected: list[int] = []
    for number, job in enumerate(jobs):
        expected.append(sum(expected[each] for each in parents[number]) % 1_000_003 + 1)
        look.demand(job.id, job.result == expected[number], f"its result is not {expected[number]}")
        ends = [line.outcome for line in job.history]
        look.demand(job.id, ends.index("succeeded") == len(ends) - 1, "it has not succeeded exactly once")
    last_end = {entry["job"]: entry["at"] for entry in journal.entries("end")}
    for entry in journal.entries("start"):
        for parent in parents[int(entry["job"].rpartition(".")[2])]:
            ended_at = last_end[f"{handle.id}.{parent}"]
            look.demand(entry["job"], entry["at"] >= ended_at, f"it started before its parent {parent} had ended")
    until(lambda: not look.sync_run(parts_of(look.app).records.all, "ended"), "all ends are processed")


def ended(look, handle) -> bool:
    return look.job(handle.id).state in TERMINAL  # `status` would count all nodes


def unfinished(look, handle, processes) -> str:
    """What a flow that does not end waits for, and where its workers are: their logs, printed below, say it."""
    jobs = {job.id: job for job in handle.jobs()}
    lines = [
        f"{job.id} {job.state} attempt {job.attempt} waits for {job.waiting_for}"
        f" ({_state(jobs, job.waiting_for)}): {job.history[-3:]}"
        for job in jobs.values()
        if job.state not in TERMINAL
    ]
    store, seen = parts_of(look.app).session.store, []
    if store.name == "postgres":
        seen = [str(tuple(row)) for row in look.sync_run(store._fetch, BACKENDS)]
    for process in processes:
        if process.running:
            process.send(signal.SIGUSR2)
            until(lambda: "most recent call first" in process.output(), f"{process!r} says where it is", 10)  # noqa: B023
    trouble = [entry["text"] for entry in look.journal.entries("warning", "outage")]
    ends = look.sync_run(parts_of(look.app).records.all, "ended")
    about = [str(handle.status()), str(look.job(handle.id)), *map(str, look.holders())]
    return "\n".join([*about, *lines[:20], *trouble[-20:], f"ends: {ends}", *seen])


def _state(jobs, waiting_for) -> str:
    parent = None if waiting_for is None else jobs.get(waiting_for.name)
    return "no job of this flow" if parent is None else str(parent.state)
