"""Whole batches in group commit: they share a write with everything else, and each is answered by itself."""

import asyncio

import pytest

from holdfast import InvalidJob, OutcomeUnknown, StoreUnavailable
from holdfast.core.clock import Entropy
from holdfast.store import group_commit as commit_module
from holdfast.store.group_commit import GroupCommit
from holdfast.store.protocol import Batch
from holdfast.store.reference.memory import MemoryStore
from holdfast.testing.build import ask, change, new_job, succeeded
from holdfast.testing.verbs import every, running


class Counted(MemoryStore):
    """Counts its writes, and fails where its script says so: with an error, before or after the write."""

    def __init__(self):
        super().__init__()
        self.writes = []
        self.script = lambda batch: None
        self.after = False

    async def write(self, batch):
        await asyncio.sleep(0)
        self.writes.append(batch)
        error = self.script(batch)
        if error is not None and not self.after:
            raise error
        answers = await super().write(batch)
        if error is not None:
            raise error
        return answers


@pytest.fixture
async def store():
    store = Counted()
    await store.open()
    return store


@pytest.fixture
async def commit(store):
    return GroupCommit(store, Entropy(1))


async def test_batches_and_single_operations_share_one_write_and_get_their_own_answers(store, commit):
    claimed = await running(store, "old", queue="other")
    store.writes.clear()
    first = asyncio.create_task(commit.insert([new_job("0")]))
    await asyncio.sleep(0)
    calls = [
        commit.write(Batch(inserts=[new_job("a"), new_job("b")], asks=[ask("ann", limit=1)])),
        commit.insert([new_job("c")]),
        commit.write(Batch(inserts=[new_job("a", nonce=9)], settles=[succeeded(claimed)])),
        commit.settle(succeeded(claimed)),
        commit.claim(ask("bob", limit=1)),
    ]
    one, alone, two, again, claims = await asyncio.gather(*calls)
    await first
    assert len(store.writes) == 2
    assert [answer.outcome for answer in one.inserts] == ["created", "created"]
    assert [answer.id for answer in alone] == ["c"]
    assert [answer.outcome for answer in two.inserts] == ["exists"]
    assert {*two.settles, again} == {True, False}
    assert [record.id for record in (*claims.records, *one.asks[0].records)] == ["0", "c"]
    assert (one.notes, two.asks) == ([], [])


async def test_a_batch_that_fails_fails_alone_with_its_own_error(store, commit):
    store.script = lambda batch: RuntimeError("poison") if any(job.id == "bad" for job in batch.inserts) else None
    first = asyncio.create_task(commit.insert([new_job("0")]))
    await asyncio.sleep(0)
    good, bad, alone = await asyncio.gather(
        commit.write(Batch(inserts=[new_job("good")])),
        commit.write(Batch(inserts=[new_job("fine"), new_job("bad")])),
        commit.insert([new_job("alone")]),
        return_exceptions=True,
    )
    await first
    assert good.inserts[0].outcome == alone[0].outcome == "created"
    assert isinstance(bad, RuntimeError)  # for its sender to take apart
    assert {record.id for record in await every(store)} == {"0", "good", "alone"}


async def test_an_error_of_ours_reaches_the_sender_of_a_batch_as_it_is(store, commit):
    store.script = lambda batch: InvalidJob("no")
    with pytest.raises(InvalidJob):
        await commit.write(Batch(inserts=[new_job()]))
    store.script = lambda batch: StoreUnavailable("down")
    with pytest.raises(StoreUnavailable):
        await commit.write(Batch(inserts=[new_job()]))


async def test_a_batch_whose_answer_was_lost_is_its_senders_to_repeat(store, commit, monkeypatch):
    monkeypatch.setattr(commit_module, "RESENDS", (0.0,))
    lost = iter([OutcomeUnknown("lost")])
    store.script, store.after = (lambda batch: next(lost, None) if batch.asks else None), True
    first = asyncio.create_task(commit.insert([new_job("0")]))
    await asyncio.sleep(0)
    theirs, ours = await asyncio.gather(
        commit.write(Batch(inserts=[new_job("theirs")], asks=[ask("ann")])),
        commit.insert([new_job("ours")]),
        return_exceptions=True,
    )
    await first
    assert isinstance(theirs, OutcomeUnknown)
    assert ours[0].outcome == "created"
    assert [job.id for job in store.writes[-1].inserts] == ["ours"]


async def test_ends_in_a_batch_that_other_jobs_wait_for_are_announced_if_they_were_written(store, commit):
    awaited, other = await running(store, "awaited"), await running(store, "other")
    announced = []
    commit.end_callbacks.add(announced.append)
    ends = [succeeded(awaited, record_end=True), succeeded(other), succeeded(other, record_end=True)]
    answers = await commit.write(Batch(settles=ends))
    assert (answers.settles, announced) == ([True, True, False], ["awaited"])


async def test_what_a_batch_claimed_for_a_sender_that_is_gone_is_given_back(store, commit):
    await store.write(Batch(inserts=[new_job("a")]))
    sender = asyncio.create_task(commit.write(Batch(asks=[ask("ann")])))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    sender.cancel()
    await asyncio.wait([sender])
    await commit.drain()
    assert [(record.state, record.attempt) for record in await every(store)] == [("queued", 0)]


async def test_a_sender_that_is_cancelled_strands_no_claim_whenever_it_is_cancelled():
    outcomes = set()
    for steps in range(12):
        store = MemoryStore()
        commit = GroupCommit(store, Entropy(1))
        await commit.insert([new_job("a")])
        sender = asyncio.create_task(commit.write(Batch(asks=[ask("ann")])))
        for _ in range(steps):
            await asyncio.sleep(0)
        sender.cancel()
        [ended] = await asyncio.gather(sender, return_exceptions=True)
        await commit.drain()
        cancelled = isinstance(ended, asyncio.CancelledError)
        [record] = await every(store)
        assert (record.state, record.attempt) == (("queued", 0) if cancelled else ("running", 1)), f"{steps} steps"
        outcomes.add((cancelled, record.fence))
    assert outcomes == {(True, 0), (True, 1), (False, 1)}


async def test_a_flood_of_operations_does_not_keep_a_batch_waiting(store, commit):
    first = asyncio.create_task(commit.insert([new_job()]))
    await asyncio.sleep(0)
    flood = [asyncio.create_task(commit.insert([new_job() for _ in range(500)])) for _ in range(20)]
    await asyncio.sleep(0)
    await commit.write(Batch(inserts=[new_job("mine")]))
    assert any(job.id == "mine" for write in store.writes[:3] for job in write.inserts)
    await asyncio.gather(first, *flood)


# -- the guard that a server sets while it works for a client


@pytest.fixture
def guarded():
    """What the guard was asked about; it lets pass changes of the job `fine` alone, and refuses the job `bad`."""
    seen = []

    async def check(jobs, changes):
        seen.append(([job.id for job in jobs], [change.id for change in changes]))
        if any(job.id == "bad" for job in jobs):
            raise InvalidJob("not for you")
        return [change for change in changes if change.id == "fine"]

    token = commit_module.guard.set(check)
    yield seen
    commit_module.guard.reset(token)


async def test_the_guard_sees_every_job_and_change_whichever_way_it_is_written(store, guarded):
    commit = GroupCommit(store, Entropy(1))
    await commit.insert([new_job("fine")])
    await commit.write(Batch(inserts=[new_job("other")]))
    fine, other = await store.get(["fine", "other"])
    written = await commit.write(Batch(changes=[change(fine, meta={"a": 1}), change(other, meta={"a": 1})]))
    await commit.change([change(fine, meta={"b": 2})])
    assert guarded == [(["fine"], []), (["other"], []), ([], ["fine", "other"]), ([], ["fine"])]
    assert len(written.changes) == 1
    assert [one.meta for one in await store.get(["fine", "other"])] == [{"a": 1, "b": 2}, {}]


async def test_what_the_guard_refuses_is_not_written(store, guarded):
    commit = GroupCommit(store, Entropy(1))
    for write in (commit.insert([new_job("bad")]), commit.write(Batch(inserts=[new_job("bad")]))):
        with pytest.raises(InvalidJob, match="not for you"):
            await write
    assert store.writes == []


async def test_the_guard_is_not_asked_about_claims_and_their_ends(store, guarded):
    commit = GroupCommit(store, Entropy(1))
    await commit.write(Batch(asks=[ask()]))
    assert guarded == []


async def test_a_change_can_be_checked_before_it_is_made(store, guarded):
    await GroupCommit(store, Entropy(1)).insert([new_job("fine")])
    [fine] = await store.get(["fine"])
    commit, before = GroupCommit(store, Entropy(1)), guarded.copy()
    await commit.check([change(fine, meta={"a": 1})])
    assert guarded[len(before) :] == [([], ["fine"])]
    assert [one.meta for one in await store.get(["fine"])] == [{}]


async def test_without_a_guard_every_change_passes_the_check(store, commit):
    await commit.insert([new_job("fine")])
    [fine] = await store.get(["fine"])
    await commit.check([change(fine, meta={"a": 1})])
