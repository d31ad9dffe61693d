"""Group commit, in front of a store whose answers the test gives."""

import asyncio
import gc

import pytest

from holdfast import InvalidJob, OutcomeUnknown, StoreUnavailable
from holdfast.core.clock import Entropy
from holdfast.core.job import State
from holdfast.core.operations import Change, Claims, Inserted, Output, Patch
from holdfast.store import group_commit as commit_module
from holdfast.store.group_commit import PAGE, GroupCommit
from holdfast.store.protocol import Answers, Batch
from holdfast.store.reference.memory import MemoryStore
from holdfast.testing import build


class ManualStore:
    """Has nothing but `write`, which waits until the test answers it."""

    def __init__(self):
        self.writes = []
        self.answers = []

    async def write(self, batch):
        answer = asyncio.get_running_loop().create_future()
        self.writes.append(batch)
        self.answers.append(answer)
        return await answer

    def answer(self, **given):
        """Answer the oldest write that waits: yes to everything, but for what is given."""
        number = next(i for i, answer in enumerate(self.answers) if not answer.done())
        self.answers[number].set_result(yes(self.writes[number], **given))

    def fail(self, error):
        next(answer for answer in self.answers if not answer.done()).set_exception(error)


class FakeStore:
    """Has nothing but `write`, which does at once what its script says: an error to raise, or None to say yes."""

    def __init__(self, script):
        self.writes = []
        self._script = script

    async def write(self, batch):
        self.writes.append(batch)
        error = self._script(batch)
        if error is not None:
            raise error
        return yes(batch)


def yes(batch, **given):
    answers = {
        "inserts": [Inserted("created", job.id) for job in batch.inserts],
        "notes": [True for _ in batch.notes],
        "settles": [True for _ in batch.settles],
        "changes": [True for _ in batch.changes],
        "asks": [Claims([]) for _ in batch.asks],
    }
    return Answers(**answers | given)


@pytest.fixture
def store():
    return ManualStore()


@pytest.fixture
async def commit(store):
    return GroupCommit(store, Entropy(1))


@pytest.fixture
def no_pause_between_resends(monkeypatch):
    monkeypatch.setattr(commit_module, "RESENDS", (0.0, 0.0, 0.0))


@pytest.fixture
async def claimed():
    """A job that was claimed from a store of its own."""
    memory = MemoryStore()
    await memory.write(build_batch(inserts=[build.new_job("held")]))
    return (await memory.write(build_batch(asks=[build.ask()]))).asks[0].records[0]


def build_batch(**fields):
    from holdfast.store.protocol import Batch

    return Batch(**fields)


async def loop_steps(count=10):
    """Let everything that is ready to run, run."""
    for _ in range(count):
        await asyncio.sleep(0)


def enqueue(commit, *ids):
    return asyncio.create_task(commit.insert([build.new_job(id) for id in ids]))


def ids(batch):
    return [job.id for job in batch.inserts]


# -- gathering


async def test_a_lone_enqueue_is_one_write_that_leaves_at_once(commit, store):
    waiting = enqueue(commit, "a")
    await loop_steps(3)
    assert [ids(batch) for batch in store.writes] == [["a"]]
    store.answer()
    assert await waiting == [Inserted("created", "a")]
    await loop_steps()
    assert len(store.writes) == 1


async def test_enqueues_during_a_write_leave_together_when_it_returns(commit, store):
    first = enqueue(commit, "first")
    await loop_steps()
    rest = [enqueue(commit, f"job {n}") for n in range(100)]
    await loop_steps()
    assert len(store.writes) == 1
    store.answer()
    await loop_steps()
    assert len(store.writes) == 2
    assert ids(store.writes[1]) == [f"job {n}" for n in range(100)]
    store.answer()
    assert await first == [Inserted("created", "first")]
    assert [await one for one in rest] == [[Inserted("created", f"job {n}")] for n in range(100)]


async def test_every_caller_gets_the_answers_to_what_it_asked(commit, store):
    blocker = enqueue(commit, "blocker")
    await loop_steps()
    one, two, three = enqueue(commit, "a", "b"), enqueue(commit), enqueue(commit, "c")
    await loop_steps()
    store.answer()
    await loop_steps()
    store.answer(inserts=[Inserted("created", "a"), Inserted("existing", "old"), Inserted("full", "c")])
    assert await one == [Inserted("created", "a"), Inserted("existing", "old")]
    assert await two == []
    assert await three == [Inserted("full", "c")]
    await blocker


async def test_all_kinds_of_operations_share_a_write(commit, store, claimed):
    blocker = enqueue(commit, "blocker")
    await loop_steps()
    waiting = [
        enqueue(commit, "a"),
        asyncio.create_task(commit.note(build.says(claimed, pid=1))),
        asyncio.create_task(commit.settle(build.succeeded(claimed))),
        asyncio.create_task(commit.change([build.deletion(claimed)])),
        asyncio.create_task(commit.claim(build.ask())),
    ]
    await loop_steps()
    store.answer()
    await loop_steps()
    batch = store.writes[1]
    assert [len(part) for part in (batch.inserts, batch.notes, batch.settles, batch.changes, batch.asks)] == [1] * 5
    store.answer(notes=[False], settles=[False], changes=[False])
    assert [await one for one in waiting] == [[Inserted("created", "a")], False, False, [False], Claims([])]
    await blocker


async def test_settlements_are_written_in_the_order_they_were_made(commit, store, claimed):
    blocker = enqueue(commit, "blocker")
    await loop_steps()
    said = []
    for nonce in range(50):
        commit.settle_soon(build.succeeded(claimed, nonce=nonce), said.append)
    store.answer()
    await loop_steps()
    assert [end.nonce for end in store.writes[1].settles] == list(range(50))
    store.answer(settles=[nonce % 2 == 0 for nonce in range(50)])
    await commit.drain()
    assert said == [nonce % 2 == 0 for nonce in range(50)]
    await blocker


async def test_a_flood_leaves_in_bounded_batches_in_order(commit, store):
    blocker = enqueue(commit, "blocker")
    await loop_steps()
    flood = [enqueue(commit, f"job {n}") for n in range(PAGE + 200)]
    claiming = asyncio.create_task(commit.claim(build.ask()))
    await loop_steps()
    store.answer()
    await loop_steps()
    assert len(store.writes[1].inserts) == PAGE
    assert len(store.writes[1].asks) == 1, "a claim does not wait behind a flood of enqueues"
    store.answer()
    await loop_steps()
    store.answer()
    await asyncio.gather(blocker, claiming, *flood)
    assert ids(store.writes[1]) + ids(store.writes[2]) == [f"job {n}" for n in range(PAGE + 200)]


async def test_nothing_to_do_writes_nothing(commit, store):
    await commit.drain()
    await loop_steps()
    assert store.writes == []


async def test_drain_waits_for_what_is_in_flight_and_for_what_gathered(commit, store):
    first = enqueue(commit, "a")
    await loop_steps()
    second = enqueue(commit, "b")
    draining = asyncio.create_task(commit.drain())
    await loop_steps()
    store.answer()
    await loop_steps()
    assert not draining.done()
    store.answer()
    await draining
    assert first.done()
    await second


# -- one operation fails


def refuses(bad, error=None):
    """A script: whatever holds the job `bad` is refused."""
    return lambda batch: (error or ValueError("cannot be stored")) if bad in ids(batch) else None


async def test_an_operation_that_fails_in_a_batch_fails_alone():
    store = FakeStore(refuses("bad"))
    commit = GroupCommit(store, Entropy(1))
    good, bad, fine = enqueue(commit, "good"), enqueue(commit, "bad"), enqueue(commit, "fine")
    assert await good == [Inserted("created", "good")]
    assert await fine == [Inserted("created", "fine")]
    with pytest.raises(OutcomeUnknown, match="ValueError: cannot be stored; the write may have happened") as raised:
        await bad
    assert isinstance(raised.value.__cause__, ValueError)


async def test_a_settlement_that_fails_does_not_keep_others_from_being_written(claimed):
    store = FakeStore(lambda batch: OverflowError("too big") if any(end.nonce == 1 for end in batch.settles) else None)
    commit = GroupCommit(store, Entropy(1))
    said = {}
    for nonce in range(3):
        commit.settle_soon(
            build.succeeded(claimed, nonce=nonce), lambda answer, nonce=nonce: said.update({nonce: answer})
        )
    await commit.drain()
    assert (said[0], said[2]) == (True, True)
    assert isinstance(said[1], OutcomeUnknown)


class PickyStore(MemoryStore):
    """Refuses every batch with the job `bad`."""

    async def write(self, batch):
        await loop_steps()
        if "bad" in ids(batch):
            raise InvalidJob("no")
        return await super().write(batch)


async def test_the_last_output_of_a_job_is_stored_though_its_batch_had_to_be_split():
    store = PickyStore()
    await store.write(Batch(inserts=[build.new_job("held")]))
    claim = (await store.write(Batch(asks=[build.ask()]))).asks[0].records[0]
    commit, said = GroupCommit(store, Entropy(1)), []
    first, bad = enqueue(commit, "first"), enqueue(commit, "bad")
    await loop_steps(1)  # the first is being written, and everything else leaves after it
    commit.note_soon(build.says(claim, output=Output(0, b"the last line\n", 1000)))
    commit.settle_soon(build.succeeded(claim), said.append)
    with pytest.raises(InvalidJob):
        await bad
    await first
    await commit.drain()
    assert said == [True]
    assert [piece.data for piece in await store.output("held", 0, 1000)] == [b"the last line\n"]


async def test_a_note_that_nobody_waits_for_may_fail_in_silence(claimed):
    reported = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    commit = GroupCommit(FakeStore(lambda _: InvalidJob("no")), Entropy(1))
    commit.note_soon(build.says(claimed, pid=1))
    await commit.drain()
    gc.collect()
    assert reported == []


async def test_an_error_of_our_own_reaches_its_caller_as_it_is():
    commit = GroupCommit(FakeStore(refuses("bad", InvalidJob("no"))), Entropy(1))
    with pytest.raises(InvalidJob, match="no"):
        await enqueue(commit, "bad")


async def test_a_broken_callback_harms_nobody_else(commit, store, claimed):
    def broken(answer):
        raise RuntimeError("a defect of the caller")

    said = []
    commit.settle_soon(build.succeeded(claimed), broken)
    commit.settle_soon(build.succeeded(claimed), said.append)
    await loop_steps()
    store.answer()
    await loop_steps()
    assert said == [True]
    enqueued = enqueue(commit, "a")
    await loop_steps()
    store.answer()
    assert await enqueued == [Inserted("created", "a")]


# -- the store fails


async def test_an_unavailable_store_is_reported_to_everybody_once_and_nothing_is_sent_again(commit, store, claimed):
    first, said = enqueue(commit, "a"), []
    await loop_steps()
    store.fail(StoreUnavailable("the disk is full"))
    commit.settle_soon(build.succeeded(claimed), said.append)
    with pytest.raises(StoreUnavailable, match="the disk is full"):
        await first
    await loop_steps()
    store.fail(StoreUnavailable("still full"))
    await loop_steps()
    assert str(said[0]) == "still full"
    assert len(store.writes) == 2


async def test_after_an_outage_everything_works_again(commit, store):
    for _ in range(3):
        failed = enqueue(commit, "a")
        await loop_steps()
        store.fail(StoreUnavailable("down"))
        with pytest.raises(StoreUnavailable):
            await failed
    worked = enqueue(commit, "a")
    await loop_steps()
    store.answer()
    assert await worked == [Inserted("created", "a")]


@pytest.mark.usefixtures("no_pause_between_resends")
async def test_a_write_whose_answer_was_lost_is_sent_again_as_it_was(claimed):
    answers = iter([OutcomeUnknown("the connection broke"), OutcomeUnknown("again"), None])
    store = FakeStore(lambda _: next(answers))
    commit = GroupCommit(store, Entropy(1))
    settled = asyncio.create_task(commit.settle(build.succeeded(claimed, nonce=5)))
    assert await enqueue(commit, "a") == [Inserted("created", "a")]
    assert await settled is True
    assert len(store.writes) == 3
    assert store.writes[0] == store.writes[1] == store.writes[2]


@pytest.mark.usefixtures("no_pause_between_resends")
async def test_a_claim_whose_answer_was_lost_is_not_repeated_but_reported():
    answers = iter([OutcomeUnknown("the connection broke"), None])
    store = FakeStore(lambda _: next(answers))
    commit = GroupCommit(store, Entropy(1))
    claiming = asyncio.create_task(commit.claim(build.ask()))
    assert await enqueue(commit, "a") == [Inserted("created", "a")]
    with pytest.raises(OutcomeUnknown, match="the connection broke"):
        await claiming
    assert [len(batch.asks) for batch in store.writes] == [1, 0]


@pytest.mark.usefixtures("no_pause_between_resends")
async def test_a_change_that_is_refused_when_it_is_sent_again_may_have_been_made():
    store = MemoryStore()
    await store.write(Batch(inserts=[build.new_job("a"), build.new_job("b")]))
    write, lose = store.write, True

    async def answer_lost(batch):
        nonlocal lose
        answers = await write(batch)
        if lose:
            lose = False
            raise OutcomeUnknown("the answer was lost")
        return answers

    store.write = answer_lost
    commit = GroupCommit(store, Entropy(1))
    with pytest.raises(OutcomeUnknown, match="the answer was lost"):
        await commit.change([Change("a", State.QUEUED, 0, None)])
    assert await store.get(["a"]) == [None], "it was deleted"
    assert await commit.change([Change("a", State.QUEUED, 0, None)]) == [False], "nothing was lost here"
    lose = True
    meta = Change("b", State.QUEUED, 0, Patch(meta={"n": 1}))
    assert await commit.change([meta]) == [True], "what can be made twice is made"


@pytest.mark.usefixtures("no_pause_between_resends")
async def test_an_outcome_that_stays_unknown_is_never_called_unwritten():
    answers = iter([OutcomeUnknown("the answer was lost"), *[StoreUnavailable("down")] * 3, None])
    commit = GroupCommit(FakeStore(lambda _: next(answers)), Entropy(1))
    with pytest.raises(OutcomeUnknown, match="the answer was lost") as raised:
        await enqueue(commit, "a")
    assert raised.value.retry_safe
    assert await enqueue(commit, "a") == [Inserted("created", "a")]


@pytest.mark.usefixtures("no_pause_between_resends")
async def test_what_was_sent_elsewhere_before_is_never_called_unwritten():
    answers = iter([*[StoreUnavailable("down")] * 3, None])
    store = FakeStore(lambda _: next(answers))
    commit, lost = GroupCommit(store, Entropy(1)), OutcomeUnknown("lost elsewhere")
    with pytest.raises(OutcomeUnknown, match="lost elsewhere"):
        await commit.insert([build.new_job("a")], lost)
    assert await commit.insert([build.new_job("a")], lost) == [Inserted("created", "a")]
    assert [len(batch.inserts) for batch in store.writes] == [1] * 4


@pytest.mark.usefixtures("no_pause_between_resends")
async def test_a_repeat_that_fails_in_another_way_strands_nobody():
    answers = iter([OutcomeUnknown("the answer was lost"), RuntimeError("a driver's defect"), None, None, None])
    commit = GroupCommit(FakeStore(lambda _: next(answers)), Entropy(1))
    async with asyncio.timeout(2):
        await asyncio.wait([enqueue(commit, "a")])
        assert await enqueue(commit, "b") == [Inserted("created", "b")]


class LossyStore(MemoryStore):
    """A memory store that writes, and then loses its answer `lost` times."""

    lost = 1

    async def write(self, batch):
        answers = await super().write(batch)
        if self.lost:
            self.lost -= 1
            raise OutcomeUnknown("the answer was lost")
        return answers


@pytest.mark.usefixtures("no_pause_between_resends")
async def test_a_repeated_enqueue_is_recognised_by_the_store():
    store = LossyStore()
    commit = GroupCommit(store, Entropy(1))
    mine = build.new_job("mine", nonce=17)
    keyed = build.new_job("keyed", key="k", nonce=18)
    assert await commit.insert([mine, keyed]) == [Inserted("created", "mine"), Inserted("created", "keyed")]
    assert len(await store.get(["mine", "keyed"])) == 2
    assert sum(sum(queue.counts.values()) for queue in await store.stats()) == 2
    theirs = build.new_job("mine", nonce=19)
    assert await commit.insert([theirs]) == [Inserted("exists", "mine")]


@pytest.mark.usefixtures("no_pause_between_resends")
async def test_a_repeated_settlement_is_recognised_by_the_store():
    store = LossyStore()
    store.lost = 0
    commit = GroupCommit(store, Entropy(1))
    await commit.insert([build.new_job("a")])
    [claim] = (await commit.claim(build.ask())).records
    store.lost = 1
    assert await commit.settle(build.succeeded(claim, nonce=5)) is True
    assert await commit.settle(build.succeeded(claim, nonce=6)) is False, "another settlement is not this one"


# -- a caller is cancelled


async def test_an_enqueue_that_was_given_up_before_its_commit_is_never_written(commit, store):
    first = enqueue(commit, "first")
    await loop_steps()
    given_up, kept = enqueue(commit, "given up"), enqueue(commit, "kept")
    await loop_steps()
    given_up.cancel()
    await loop_steps()
    store.answer()
    await loop_steps()
    assert ids(store.writes[1]) == ["kept"]
    store.answer()
    await asyncio.gather(first, kept)


async def test_a_caller_that_is_cancelled_in_flight_does_not_disturb_the_others(commit, store):
    given_up, kept = enqueue(commit, "a"), enqueue(commit, "b")
    await loop_steps()
    given_up.cancel()
    await loop_steps()
    store.answer()
    assert await kept == [Inserted("created", "b")]


@pytest.mark.parametrize("outage", [None, StoreUnavailable("away")])
async def test_who_gave_up_a_note_an_end_or_a_change_in_flight_does_not_disturb_the_others(
    commit, store, claimed, outage
):
    first = enqueue(commit, "0")
    await loop_steps()
    calls = (
        lambda: commit.note(build.says(claimed, progress=b"1")),
        lambda: commit.settle(build.succeeded(claimed)),
        lambda: commit.change([build.change(claimed, meta={"a": 1})]),
    )
    given_up, kept = ([asyncio.create_task(call()) for call in calls] for _ in range(2))
    store.answer()
    await first
    await loop_steps()
    for one in given_up:
        one.cancel()
    await loop_steps()
    store.answer() if outage is None else store.fail(outage)
    answers = await asyncio.wait_for(asyncio.gather(*kept, return_exceptions=True), 90)
    assert answers == ([True, True, [True]] if outage is None else [outage] * 3)
    assert all(one.cancelled() for one in given_up)


async def test_a_claim_that_was_given_up_before_its_commit_is_never_asked(commit, store):
    first = enqueue(commit, "first")
    await loop_steps()
    claiming = asyncio.create_task(commit.claim(build.ask()))
    await loop_steps()
    claiming.cancel()
    await loop_steps()
    store.answer()
    await first
    await commit.drain()
    assert len(store.writes) == 1


def released(store, claimed):
    [end] = store.writes[1].settles
    assert (end.id, end.fence, end.token) == (claimed.id, claimed.fence, claimed.token)
    return (end.state, end.outcome, end.attempt) == ("queued", "released", claimed.attempt - 1)


async def test_jobs_of_a_claimer_that_is_cancelled_in_flight_go_back(commit, store, claimed):
    claiming = asyncio.create_task(commit.claim(build.ask()))
    await loop_steps()
    claiming.cancel()
    await loop_steps()
    store.answer(asks=[Claims([claimed])])
    await loop_steps()
    assert released(store, claimed)
    store.answer()
    await commit.drain()


async def test_jobs_of_a_claimer_that_is_cancelled_as_its_answer_arrives_go_back(commit, store, claimed):
    claiming = asyncio.create_task(commit.claim(build.ask()))
    await loop_steps()
    store.answer(asks=[Claims([claimed])])
    # Cancelled in the one moment between the answer and the claimer's waking.
    while not claiming.done():
        if store.answers[0].done() and getattr(claiming, "_fut_waiter", None) and claiming._fut_waiter.done():
            claiming.cancel()
        await asyncio.sleep(0)
    assert claiming.cancelled()
    await loop_steps()
    assert released(store, claimed)
    store.answer()
    await commit.drain()


async def test_a_cancelled_claimer_on_a_real_store_strands_nothing_whenever_it_is_cancelled():
    for steps in range(12):
        store = MemoryStore()
        commit = GroupCommit(store, Entropy(1))
        await commit.insert([build.new_job("a"), build.new_job("b")])
        claiming = asyncio.create_task(commit.claim(build.ask(limit=5)))
        await loop_steps(steps)
        claiming.cancel()
        [ended] = await asyncio.gather(claiming, return_exceptions=True)
        await commit.drain()
        states = {record.id: (record.state, record.attempt) for record in await store.get(["a", "b"])}
        expected = ("queued", 0) if isinstance(ended, asyncio.CancelledError) else ("running", 1)
        assert states == {"a": expected, "b": expected}, f"cancelled after {steps} steps"


async def test_one_change_instead_of_a_list_is_refused(commit, claimed):
    with pytest.raises(TypeError, match="takes a list of changes"):
        async with asyncio.timeout(10):
            await commit.change(build.deletion(claimed))
