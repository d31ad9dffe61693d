"""How many jobs a worker asks for, when, and how long it waits in between."""

import asyncio
from types import SimpleNamespace

import pytest

from holdfast import ConfigError, StoreLost, StoreUnavailable
from holdfast.core.clock import Entropy
from holdfast.core.job import Record
from holdfast.core.operations import Claims
from holdfast.observe.outages import Outages
from holdfast.testing import ManualClock, build
from holdfast.worker.claim import IDLE_POLL, Claimer
from holdfast.worker.queue_rotation import QueueRotation
from holdfast.worker.run import Run
from holdfast.worker.slots import Slots

LEASE = 30.0


class Scene:
    """A claimer whose claims are answered by `answers`, one after the other; the last of them ends it."""

    def __init__(self, *, poll=5.0, until_idle=False, size=4, isolate_quarantined=False):
        self.clock = ManualClock()
        self.slots = Slots(size, isolate_quarantined=isolate_quarantined)
        self.answers, self.asks, self.fresh, self.waiting_for, self.idle = [], [], 0, [], [True]
        self.ahead, self.begun_ahead, self.begins = 0, [], []
        pauses = SimpleNamespace(fresh=self._fresh)
        session = SimpleNamespace(outages=Outages(self.clock), task_pauses=pauses, clock=self.clock, entropy=Entropy(1))
        leases = SimpleNamespace(holder=build.holder("ann", LEASE), claim=self._claim)
        freeing = SimpleNamespace(idle=self._idle)
        self.claimer = Claimer(
            session, self.slots, leases, lambda record: None, begin_ahead=self.begun_ahead.append,
            prefetch=SimpleNamespace(room=self._room),
            poll=poll, rotation=QueueRotation({"default": 1}), until_idle=until_idle, dependency_release=freeing,
        )  # fmt: skip

    reliable = False
    """As a listener: notifications may be lost."""

    def _room(self):
        return self.slots.free(self.ahead)

    async def _fresh(self):
        self.fresh += 1

    async def _idle(self):
        return self.idle.pop(0) if len(self.idle) > 1 else self.idle[0]

    async def _claim(self, ask, begin):
        self.asks.append(ask)
        self.begins.append(begin)
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def wait(self, seconds):
        """As a listener."""
        self.waiting_for.append(seconds)

    async def run(self, *answers):
        """Claim until the answers are used up."""
        self.answers = [*answers, asyncio.CancelledError()]
        with pytest.raises(asyncio.CancelledError):
            await self.claimer.run(self)


@pytest.fixture
def pauses(monkeypatch):
    """The seconds that were slept."""
    slept, sleep = [], asyncio.sleep

    async def noted(seconds):
        slept.append(seconds)
        await sleep(0)

    monkeypatch.setattr("holdfast.worker.claim.asyncio.sleep", noted)
    return slept


def run(id="job", *, quarantined=False):
    return Run(
        Record(1, id, "default", "work", "running", 0, 0, b"{}", "json", 5, None, None, 0, quarantined=quarantined)
    )


NOTHING = Claims([])
AWAY = StoreUnavailable("away")


async def test_a_claim_asks_for_as_many_jobs_as_there_are_free_slots(pauses):
    scene = Scene(size=4)
    scene.slots.add(run())
    await scene.run(NOTHING)
    assert [(ask.limit, ask.busy, ask.queues) for ask in scene.asks] == [(3, True, ("default",))] * 2
    assert (scene.fresh, scene.waiting_for, pauses) == (2, [5.0], [])


async def test_a_claimer_whose_slots_are_full_waits_for_one(pauses):
    scene = Scene(size=1)
    one = run()
    scene.slots.add(one)
    scene.answers = [asyncio.CancelledError()]
    claiming = asyncio.create_task(scene.claimer.run(scene))
    for _ in range(10):
        await asyncio.sleep(0)
    assert (scene.asks, claiming.done()) == ([], False)
    scene.slots.remove(one)
    await asyncio.wait([claiming])
    assert [ask.limit for ask in scene.asks] == [1]


async def test_only_a_worker_without_processes_for_quarantined_is_busy_for_them(pauses):
    for apart, busy in ((False, True), (True, False)):
        scene = Scene(isolate_quarantined=apart)
        await scene.run()
        scene.slots.add(run())
        await scene.run()
        assert [ask.busy for ask in scene.asks] == [False, busy]


async def test_who_found_jobs_claims_again_at_once(pauses):
    scene = Scene()
    await scene.run(Claims([run().record]), NOTHING)
    assert (len(scene.asks), scene.waiting_for) == (3, [5.0])


@pytest.mark.parametrize(("due_in", "pause"), [(None, 5.0), (2.0, 2.001), (9.0, 5.0), (0.0, 0.001)])
async def test_who_found_none_waits_until_the_next_job_is_due_and_not_beyond_poll(due_in, pause):
    assert Scene().claimer._pause(Claims([], due_in=due_in), 5.0) == pytest.approx(pause)
    assert Scene(until_idle=True).claimer._pause(Claims([], due_in=due_in), 5.0) == pytest.approx(min(pause, IDLE_POLL))


# -- a store that is away


@pytest.mark.parametrize(
    ("poll", "expected"),
    [
        (0.01, [0.02, 0.04, 0.08, 0.16, 0.32, 0.32, 0.32]),
        (0.1, [0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0]),
        (3.0, [3.0] * 7),
    ],
)
async def test_a_store_that_is_away_is_asked_again_after_longer_pauses(pauses, poll, expected):
    scene = Scene(poll=poll)
    await scene.run(*[AWAY] * 7)
    assert pauses == pytest.approx(expected)


async def test_a_claim_that_worked_ends_the_longer_pauses(pauses):
    scene = Scene(poll=0.1)
    await scene.run(AWAY, AWAY, NOTHING, AWAY)
    assert pauses == pytest.approx([0.2, 0.4, 0.2])


async def test_a_store_that_refuses_the_first_claim_ends_the_worker_and_a_later_one_does_not(pauses):
    with pytest.raises(ConfigError):
        await refused(Scene(poll=0.1))
    assert pauses == []
    scene = Scene(poll=0.1)
    await scene.run(NOTHING, ConfigError("no"), ConfigError("no"))
    assert pauses == pytest.approx([0.2, 0.4])
    with pytest.raises(ConfigError):
        await refused(Scene(), AWAY)


async def refused(scene, *before):
    scene.answers = [*before, ConfigError("no")]
    await scene.claimer.run(scene)


async def test_a_store_that_is_lost_ends_the_worker(pauses):
    scene = Scene()
    scene.answers = [NOTHING, StoreLost("the database is gone")]
    with pytest.raises(StoreLost):
        await scene.claimer.run(scene)


# -- quarantined jobs


async def test_a_busy_worker_waits_for_a_quarantined_for_a_lease_and_then_for_none_for_another():
    scene = Scene(size=4)
    scene.slots.add(run())
    free, waiting = scene.claimer._free, Claims([], quarantined_waiting=True)
    scene.claimer._drain_for_quarantined(NOTHING)
    assert free() == 3
    scene.claimer._drain_for_quarantined(waiting)
    assert free() == 0
    scene.clock.advance(LEASE - 1)
    assert free() == 0
    scene.clock.advance(1)
    assert free() == 3
    scene.clock.advance(LEASE)
    scene.claimer._drain_for_quarantined(waiting)
    assert free() == 3
    scene.clock.advance(1)
    scene.claimer._drain_for_quarantined(waiting)
    assert free() == 0


async def test_an_idle_worker_and_one_with_processes_for_quarantined_wait_for_none():
    idle, apart = Scene(size=4), Scene(size=4, isolate_quarantined=True)
    apart.slots.add(run())
    for scene in (idle, apart):
        scene.claimer._drain_for_quarantined(Claims([], quarantined_waiting=True))
        scene.slots.add(run("other"))
    assert (idle.claimer._free(), apart.claimer._free()) == (3, 2)


async def test_a_worker_that_waited_for_a_quarantined_in_vain_wakes_up():
    scene, called = Scene(), []
    scene.slots.add(run())
    scene.claimer._loop = SimpleNamespace(call_later=lambda *args: called.append(args))
    scene.claimer._drain_for_quarantined(Claims([], quarantined_waiting=True))
    [(after, wake)] = called
    wake()
    assert (after, scene.slots.freed.is_set()) == (LEASE, True)


# -- until idle


async def test_a_worker_that_is_to_end_once_idle_ends_after_a_claim_that_found_nothing(pauses):
    scene = Scene(until_idle=True)
    scene.answers = [NOTHING]
    await scene.claimer.run(scene)
    assert len(scene.asks) == 1


@pytest.mark.parametrize("idle", [[False, True, True, True], [True, False, True, True]])
async def test_it_goes_on_where_something_was_not_done_before_or_after_that_claim(pauses, idle):
    scene = Scene(until_idle=True)
    scene.answers, scene.idle = [NOTHING, NOTHING], idle
    await scene.claimer.run(scene)
    assert (len(scene.asks), scene.waiting_for) == (2, [IDLE_POLL])


async def test_it_goes_on_while_jobs_run_or_their_ends_are_written(pauses):
    for busy in ("runs", "ends"):
        scene = Scene(until_idle=True)
        if busy == "runs":
            scene.slots.add(run())
        else:
            scene.slots.settling.add(("job", 1))
        await scene.run(NOTHING, NOTHING)
        assert scene.waiting_for == [IDLE_POLL] * 2


async def test_a_claim_for_more_than_the_free_slots_begins_its_jobs_ahead():
    scene = Scene(size=4)
    await scene.run(NOTHING)
    assert scene.begun_ahead.append not in scene.begins
    scene.ahead = 3
    await scene.run(NOTHING)
    assert (scene.asks[-1].limit, scene.begins[-1]) == (7, scene.begun_ahead.append)
