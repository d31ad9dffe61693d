"""Why a job is not running, from values alone."""

import pytest

from holdfast.client.explain import why
from holdfast.core.job import Record, State
from holdfast.core.operations import Holder, HolderInfo

NOW = 1_800_000_000_000_000


def record(state=State.QUEUED, **fields):
    given = {"seq": 1, "id": "j", "queue": "mail", "task": "send", "state": state, "priority": 0, "run_at": NOW}
    given |= {"payload": b"{}", "codec": "json", "max_attempts": 5, "timeout": None, "key": None, "created_at": NOW}
    return Record(**given | fields)


def worker(name="w", *, queues=("mail",), tasks=("send",), slots=2, jobs=(), alive=True, kind="worker", age=1.0):
    holder = Holder(name, 30.0, kind, "node1", 42, queues, tasks, slots)
    return HolderInfo(holder, 1, age, alive, jobs)


RUNNING = (
    "worker w on node node1 runs it since 2027-01-15 08:00:00+00:00 (pid 77); "
    "its lease is valid for another 29 s and is renewed by heartbeats"
)
REASONS = [
    (record(), [], (), "no worker is alive"),
    (record(), [worker(alive=False)], (), "no worker is alive"),
    (record(), [worker(kind="manual")], (), "no worker is alive"),
    (record(), [worker(queues=("other",))], (), "no live worker serves queue 'mail' (1 serve other queues)"),
    (record(), [worker(tasks=("x",))], (), "no live worker of queue 'mail' has task 'send' registered"),
    (record(), [worker()], ("mail",), "queue 'mail' is paused; `holdfast resume mail` resumes it"),
    (record(), [worker(jobs=("a", "b"))], (), "all 2 slots of the 1 workers of queue 'mail' are busy"),
    (record(), [worker(jobs=("a",))], (), "it is ready, and a worker should take it within a poll interval"),
    (
        record(quarantined=True),
        [worker()],
        (),
        "it is quarantined after a crash of its process, so it waits for a worker that runs no other job",
    ),
    (record(task="m:f"), [worker()], (), "it is ready, and a worker should take it within a poll interval"),
    (record(State.BLOCKED), [worker()], (), "it waits for other jobs to end"),
    (
        record(State.SCHEDULED, run_at=NOW + 7_200_000_000),
        [worker()],
        (),
        "it is scheduled for 2027-01-15 10:00:00+00:00 (in 2 h)",
    ),
    (
        record(State.FAILED, run_at=NOW + 90_000_000, attempt=2, error="Boom"),
        [worker()],
        (),
        "it waits for its retry at 2027-01-15 08:01:30+00:00 (in 90 s), after attempt 2 of 5",
    ),
    (
        record(State.RUNNING, holder="w", started_at=NOW, pid=77),
        [worker(jobs=("j",))],
        (),
        RUNNING,
    ),
    (
        record(State.RUNNING, holder="w", started_at=NOW),
        [worker(jobs=("j",), alive=False)],
        (),
        "worker w ran it since 2027-01-15 08:00:00+00:00, but its lease has expired; a live worker will recover it",
    ),
    (record(State.DEAD, finished_at=NOW), [], (), "it ended at 2027-01-15 08:00:00+00:00"),
]


@pytest.mark.parametrize(("job", "holders", "pauses", "reason"), REASONS, ids=[str(n) for n in range(len(REASONS))])
def test_the_reason(job, holders, pauses, reason):
    assert why(job, NOW, holders, pauses).reason == reason


def test_a_paused_queue_that_nobody_serves_has_both_said():
    said = why(record(), NOW, [worker(queues=("x",))], ["mail"])
    assert said.reason.startswith("queue 'mail' is paused")
    assert said.details == ("no live worker serves queue 'mail' (1 serve other queues)",)


def test_busy_workers_are_busy_since_the_last_job_they_took():
    busy = [record(State.RUNNING, started_at=NOW - 5_000_000), record(State.RUNNING, started_at=NOW - 60_000_000)]
    said = why(record(), NOW, [worker(jobs=("a", "b"))], (), busy)
    assert said.reason.endswith("are busy since 2027-01-15 07:59:55+00:00")
