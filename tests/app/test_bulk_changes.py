"""Retry, cancel and delete in bulk: exact counts, why jobs are skipped, progress, and going on half way."""

from __future__ import annotations

import pytest

from holdfast import Holdfast, InvalidJob, OutcomeUnknown, State, StoreUnavailable
from holdfast.client import bulk_change as bulk_module
from holdfast.client.search import Filter
from holdfast.core.operations import Change, Patch
from holdfast.store.group_commit import guard
from holdfast.store.reference.memory import MemoryStore
from support.dead_jobs import make_dead
from support.inside import session_of


@pytest.fixture(autouse=True)
def steps_of_ten(monkeypatch):
    monkeypatch.setattr(bulk_module, "PAGE", 10)


async def counts(app: Holdfast) -> dict[str, int]:
    return {state: number for state, number in (await app.stats()).counts.items() if number}


async def test_a_step_of_dead_jobs_is_retried_in_one_write(make_app):
    class Counted(MemoryStore):
        writes = 0

        async def write(self, batch):
            self.writes += 1
            return await super().write(batch)

    store = Counted()
    app = make_app(store)
    await make_dead(app, 25)
    store.writes = 0
    assert await app.bulk.retry_dead() == 25
    assert store.writes == 3


async def test_progress_is_reported_after_each_step_with_the_totals_so_far(app):
    await make_dead(app, 25)
    seen = []
    assert await app.bulk.retry_dead(progress=seen.append) == 25
    assert [(one.matched, one.changed, one.skipped) for one in seen] == [(10, 10, 0), (20, 20, 0), (25, 25, 0)]
    assert [one.cursor is None for one in seen] == [False, False, True]


async def test_progress_can_end_it_and_the_next_call_does_the_rest(app):
    await make_dead(app, 25)
    assert await app.bulk.retry_dead(progress=lambda seen: seen.matched < 20) == 20
    assert await counts(app) == {"queued": 20, "dead": 5}
    assert await app.bulk.retry_dead() == 5
    assert await app.bulk.purge(state="queued", progress=lambda _: False) == 10
    assert await app.bulk.purge(state="queued") == 15


@pytest.mark.parametrize("action", ["retry", "cancel", "delete"])
async def test_what_is_skipped_is_counted_by_its_reason(app, action):
    await make_dead(app, 2)
    waiting, running = [await app.enqueue("noop") for _ in range(2)]
    [claim] = await app.claim(limit=1)
    other = waiting if claim.job.id == running.id else running
    done = await app.bulk.change(action, ids=[*[job.id for job in (await app.jobs()).jobs], "no such job"])
    expected = {
        "retry": (3, {"state": 1, "not_found": 1}),
        "cancel": (2, {"state": 2, "not_found": 1}),
        "delete": (3, {"state": 1, "not_found": 1}),
    }
    assert (done.matched, done.changed, done.reasons) == (4, *expected[action])
    assert done.skipped == sum(done.reasons.values())
    if action == "cancel":
        assert (await app.job(claim.job.id)).cancel_requested
        assert (await other.job()).state == State.CANCELLED
    await claim.release()


async def test_a_job_that_others_retried_and_finished_meanwhile_does_not_run_again(make_app):
    class Late(MemoryStore):
        meanwhile = None

        async def write(self, batch):
            if batch.changes and self.meanwhile is not None:
                meanwhile, self.meanwhile = self.meanwhile, None
                await meanwhile()
            return await super().write(batch)

    store = Late()
    app = make_app(store)
    first, *_ = await make_dead(app, 3)

    async def succeed():
        await session_of(app).store.write(_batch(Change(first, State.DEAD, 0, Patch(state=State.SUCCEEDED, keep=None))))

    store.meanwhile = succeed
    seen = []
    assert await app.bulk.retry_dead(progress=seen.append) == 2
    assert seen[-1].reasons == {"moved": 1}
    assert (await app.job(first)).state == State.SUCCEEDED


def _batch(*changes):
    from holdfast.store.protocol import Batch

    return Batch(changes=list(changes))


async def test_what_one_caller_may_not_change_keeps_no_other_job_from_it(app):
    ids = await make_dead(app, 9)
    asked = []

    async def refuse(_, changes):
        asked.append(len(changes))
        if any(change.id == ids[4] for change in changes):
            raise InvalidJob("not by you")
        return changes

    await app.open()
    token = guard.set(refuse)
    try:
        done = await app.bulk.change("retry", Filter(state="dead"))
    finally:
        guard.reset(token)
    assert (done.changed, done.reasons) == (8, {"refused": 1})
    assert max(asked) == 9
    assert len(asked) < 9


async def test_a_damaged_job_is_skipped_as_it_is_when_it_is_retried_alone(make_app, tmp_path):
    import sqlite3

    app = make_app(f"sqlite:///{tmp_path}/damaged.db")
    first, *_ = await make_dead(app, 3)
    with sqlite3.connect(tmp_path / "damaged.db") as connection:
        connection.execute("UPDATE holdfast_job SET history = 'no JSON' WHERE id = ?", (first,))
    connection.close()
    done = await app.bulk.change("retry", Filter(state="dead"))
    assert (done.changed, done.reasons) == (2, {"damaged": 1})


async def test_every_change_of_many_is_an_event(app):
    received = []
    for name in ("job_retried", "job_deleted"):
        app.on(name, lambda event: received.append((event.name, event.job_id)))
    ids = await make_dead(app, 12)
    await app.bulk.retry_dead()
    await app.bulk.purge(state="queued")
    assert sorted(received) == sorted([("job_deleted", id) for id in ids] + [("job_retried", id) for id in ids])


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        (StoreUnavailable("down"), r"written at least in part; call retry_dead .*\. The step that failed: down"),
        (OutcomeUnknown("lost"), "lost"),
    ],
)
async def test_a_store_that_fails_half_way_is_reported_truthfully_and_the_next_call_does_the_rest(
    make_app, monkeypatch, lost, said
):
    class Fails(MemoryStore):
        left = -1

        async def write(self, batch):
            if batch.changes:
                self.left -= 1
                if self.left == 0 or (self.left < 0 <= self.left + 3 and isinstance(lost, OutcomeUnknown)):
                    raise lost
            return await super().write(batch)

    from holdfast.store import group_commit as commit

    monkeypatch.setattr(commit, "RESENDS", (0.0,))
    store = Fails()
    store.left = -100
    app = make_app(store)
    await make_dead(app, 25)
    store.left, seen = 2, []
    with pytest.raises(OutcomeUnknown, match=said):
        await app.bulk.retry_dead(progress=seen.append)
    assert seen[-1].changed == 10
    assert await counts(app) == {"queued": 10, "dead": 15}
    store.left = -100
    assert await app.bulk.retry_dead() == 15
