"""A store that goes away at any write of a flow's operation: the error of the caller is true, and a repeat is safe. (U)

Each operation is made on a flow of its own with the store going away at its first write, at its second, and so on,
until it is through before that.
"""

from __future__ import annotations

import itertools
from contextlib import suppress

import pytest
import pytest_asyncio

from holdfast import Flow, Holdfast, InvalidState, JobNotFound, OutcomeUnknown, State, StoreUnavailable
from holdfast.app import parts_of
from holdfast.flows.creation import ENDED, pending
from support.eventually import eventually
from support.flowing import ByHand
from support.inside import session_of
from support.workers import work_off

READS = ("get", "find", "records", "now")
FATES = pytest.mark.parametrize(
    "fate", ["refused", "answer lost", pytest.param("answered", marks=pytest.mark.extended)]
)


class Outage:
    """Lets so many writes of a store pass. The next one is refused, loses its answer, or is answered; then the store
    is away, for reads too.

    Writes of the audit log do not count: how many an action has depends on the second in which it begins, so writes of
    the operation would be left out. `test_audited_kills.py` interrupts those.
    """

    def __init__(self, store):
        self._left, self._fate, self._away = -1, "refused", False
        for name in (*READS, "write", "put_record"):
            setattr(store, name, self._through(name, getattr(store, name)))

    def begin(self, passes, fate):
        self._left, self._fate, self._away = passes, fate, False

    def end(self):
        """The store is back; whether it was away."""
        was, self._left, self._away = self._away, -1, False
        return was

    def _through(self, name, call):
        async def through(*given):
            if self._away:
                raise StoreUnavailable("away; nothing was written")
            counts = name not in READS and not (name == "put_record" and given[0].startswith("audit"))
            if counts and self._left >= 0:
                self._left -= 1
                self._away = self._left < 0
            if not self._away:
                return await call(*given)
            if self._fate == "refused":
                raise StoreUnavailable("away; nothing was written")
            answer = await call(*given)
            if self._fate == "answered":
                return answer
            raise OutcomeUnknown("the answer was lost")

        return through


class Scene:
    """A caller whose line to the store can be cut, and a worker elsewhere."""

    def __init__(self, url):
        self.app, self.worker, self.ran, self.broken = Holdfast(url), Holdfast(url, poll=0.05), [], True
        for app in (self.app, self.worker):
            app.task(name="note")(self._note)
            app.task(name="fragile", max_attempts=1)(self._fragile)
        self.note, self.fragile = (parts_of(self.app).registry.tasks[name] for name in ("note", "fragile"))

    async def _note(self, word: str) -> None:
        self.ran.append(word)

    async def _fragile(self, word: str) -> None:
        if self.broken:
            raise ValueError("broken")
        self.ran.append(word)

    def flow(self, *words, first=None):
        """A flow of one job after another."""
        flow = Flow()
        for word in words:
            node = flow.add(self.note if flow.nodes else first or self.note, word)
            if node.number:
                node.after(flow.nodes[node.number - 1])
        return flow

    def writes(self):
        """A word for each write of an operation, from its first one on, and for once without any outage."""
        for passes in itertools.count():
            self._passes, self._away = passes, None
            yield str(passes)
            assert self._away is not None, "nothing was cut"
            if not self._away:
                assert passes, "the operation wrote nothing"
                return

    async def cut(self, fate, operation):
        """What an operation answers, or the error that says what became of it, where the store goes away meanwhile."""
        self.outage.begin(self._passes, fate)
        try:
            return await operation
        except (StoreUnavailable, OutcomeUnknown) as error:
            return error
        finally:
            self._away = self.outage.end()

    async def work_off(self, **options):
        await eventually(self._worker_has_seen_all)  # processes that share a folder hear of each other a little later
        await work_off(self.worker, **options)

    async def _worker_has_seen_all(self):
        return await parts_of(self.worker).records.all(ENDED) == await parts_of(self.app).records.all(ENDED)

    async def left_over(self):
        """What workers have still to do about flows that were started."""
        return [
            id for id, kept in (await parts_of(self.worker).records.all(ENDED)).items() if pending(kept).making is None
        ]

    async def running_job_of(self, flow):
        """A job of a flow that another worker runs, and that worker."""
        by_hand = ByHand(self.worker)
        await self.app.enqueue_flow(flow)
        [record] = await eventually(by_hand.claim)
        return record, by_hand


@pytest_asyncio.fixture
async def scene(store_url, monkeypatch):
    monkeypatch.setattr("holdfast.store.group_commit.RESENDS", (0.01,))
    scene = Scene(store_url)
    async with scene.app, scene.worker:
        scene.outage = Outage(session_of(scene.app).store)
        yield scene


@FATES
@pytest.mark.parametrize("hooked", [False, True], ids=["one write", "several writes"])
async def test_a_flow_that_is_said_to_be_enqueued_runs_once_and_one_that_is_not_never(scene, fate, hooked):
    if hooked:
        scene.app.around_enqueue.append(lambda job, insert: insert(job))
    for word in scene.writes():
        flow = scene.flow(word, word)
        said = await scene.cut(fate, scene.app.enqueue_flow(flow))
        await scene.work_off()
        if isinstance(said, OutcomeUnknown):
            assert not said.retry_safe
            await scene.app.enqueue_flow(flow, id=said.job_ids[0])
            await scene.work_off()
        assert scene.ran.count(word) == (0 if isinstance(said, StoreUnavailable) else 2), (word, said)
    assert await scene.left_over() == []


@FATES
async def test_a_flow_that_is_enqueued_again_under_its_id_runs_once(scene, fate):
    for word in scene.writes():
        flow, id = scene.flow(word, word), f"flow-{word}"
        said = await scene.cut(fate, scene.app.enqueue_flow(flow, id=id))
        assert getattr(said, "retry_safe", True)
        assert (await scene.app.enqueue_flow(flow, id=id)).id == id
        await scene.work_off()
        assert scene.ran.count(word) == 2, (word, said)
    assert await scene.left_over() == []


@FATES
@pytest.mark.parametrize("key", [None, "key"])
@pytest.mark.parametrize("after", [False, True], ids=["starts at once", "after the adding job"])
async def test_a_job_that_is_said_to_be_added_runs_once_and_one_that_is_not_never(scene, fate, key, after):
    for word in scene.writes():
        record, by_hand = await scene.running_job_of(scene.flow("adds"))
        task = scene.note if key is None else scene.note.using(key=f"{key}-{word}")

        def add(record=record, task=task, word=word):
            return scene.app.flows.add(record, task, (word,), {}, after=[record.id] if after else [])

        said = await scene.cut(fate, add())
        if isinstance(said, OutcomeUnknown):
            assert said.retry_safe == (key is not None)
            if said.retry_safe:
                assert (await add()).id.startswith(record.id.rpartition(".")[0])
        await by_hand.end(record)
        await scene.work_off()
        if isinstance(said, OutcomeUnknown) and key is None:
            assert scene.ran.count(word) <= 1
        else:
            assert scene.ran.count(word) == (0 if isinstance(said, StoreUnavailable) else 1), (word, said)
    assert await scene.left_over() == []


@FATES
async def test_a_flow_that_is_said_to_be_cancelled_ends_so_and_one_that_is_not_goes_on(scene, fate):
    for word in scene.writes():
        handle = await scene.app.enqueue_flow(scene.flow(word, word))
        said = await scene.cut(fate, handle.cancel())
        if isinstance(said, OutcomeUnknown):
            assert said.retry_safe
            # A server may have ended the flow by now: then there is nothing left to cancel.
            said = await handle.cancel() or (await handle.status()).state == State.CANCELLED
        await scene.work_off(queues="elsewhere")  # what is claimed before a worker looks may run
        await scene.work_off()
        state, ran = (await handle.status()).state, scene.ran.count(word)
        assert (state, ran) == ((State.CANCELLED, 0) if said is True else (State.SUCCEEDED, 2)), (word, said)
    assert await scene.left_over() == []


@FATES
async def test_a_flow_that_is_said_to_be_deleted_is_gone_and_one_that_is_not_is_whole(scene, fate):
    for word in scene.writes():
        handle = await scene.app.enqueue_flow(scene.flow(word, word))
        await scene.work_off()
        said = await scene.cut(fate, scene.app.delete(handle.id))
        if isinstance(said, OutcomeUnknown):
            with suppress(JobNotFound):
                said = await scene.app.delete(handle.id)
        await scene.work_off()
        left = [record.id for record in await session_of(scene.worker).store.get(ids(handle)) if record is not None]
        assert left == (ids(handle) if isinstance(said, StoreUnavailable) else []), (word, said)
    assert await scene.left_over() == []


@FATES
async def test_a_flow_that_is_said_to_be_retried_succeeds_and_one_that_is_not_stays_dead(scene, fate):
    for word in scene.writes():
        scene.broken = True
        handle = await scene.app.enqueue_flow(scene.flow(word, word, first=scene.fragile))
        await scene.work_off()
        scene.broken = False
        said = await scene.cut(fate, handle.retry())
        if isinstance(said, OutcomeUnknown):
            assert said.retry_safe
            with suppress(InvalidState):
                await handle.retry()
        await scene.work_off()
        state, ran = (await handle.status()).state, scene.ran.count(word)
        unwritten = isinstance(said, StoreUnavailable)
        assert (state, ran) == ((State.DEAD, 0) if unwritten else (State.SUCCEEDED, 2)), (word, said)
    assert await scene.left_over() == []


@FATES
async def test_a_job_of_a_flow_that_is_said_to_be_cancelled_ends_so_and_one_that_is_not_runs(scene, fate):
    for word in scene.writes():
        handle = await scene.app.enqueue_flow(scene.flow(word, word))
        said = await scene.cut(fate, scene.app.cancel(f"{handle.id}.1"))
        await scene.work_off()
        states = [str(job.state) for job in await handle.jobs()]
        if not isinstance(said, OutcomeUnknown):
            ends = "succeeded" if isinstance(said, StoreUnavailable) else "cancelled"
            assert states == ["succeeded", ends], (word, said)
    assert await scene.left_over() == []


def ids(handle):
    return [handle.id, f"{handle.id}.0", f"{handle.id}.1"]
