"""Jobs that wait for a limit, in the order of the reference: which are released, when, and how many at a time."""

import pytest

from holdfast.core.job import LimitKey, Record, State
from holdfast.core.limiter import AT_ONCE, KEPT
from holdfast.core.waiting import Waiting
from holdfast.store.protocol import DEFER_LIMIT
from holdfast.store.reference.ready_queues import Picking, ReadyQueues
from holdfast.testing.build import ask

NOW = 10 * KEPT
RATE = LimitKey("mail", interval=1000, burst=3)


def record(seq: int, state: State = State.QUEUED, limit_key: LimitKey | None = None, **fields) -> Record:
    return Record(
        seq, f"j{seq}", "default", "work", state, 0, NOW, b"", "json", 3, None, None, NOW, limit_key=limit_key, **fields
    )


class Queues:
    """Ready queues, and the jobs in them."""

    def __init__(self, *records: Record):
        self.by_seq = {one.seq: one for one in records}
        self.ready = ReadyQueues(self.by_seq)
        for one in records:
            self.ready.enter(one)

    def pick(self, now: int = NOW, *, limit: int = 10, **options) -> list[int]:
        """Claim; the numbers of the chosen jobs."""
        picking = Picking(ask(limit=limit, **options), now)
        self.ready.pick("default", picking)
        for one in picking.chosen:
            self.ready.start(one, now)
            self.ready.exit(one)
            one.state = State.RUNNING
            self.ready.enter(one)
        return [one.seq for one in picking.chosen]

    def deferred(self) -> list[int]:
        return [one.seq for one in self.by_seq.values() if one.state == State.BLOCKED]


def test_one_claim_releases_jobs_of_a_limited_number_of_keys():
    """Else a claim would take longer the more keys open at the same time."""
    keys = [LimitKey(f"k{n}", concurrency=1) for n in range(DEFER_LIMIT + 1)]
    queues = Queues()
    for seq, key in enumerate(keys):
        one = record(seq, State.BLOCKED, key, waiting_for=Waiting("limit", key.name))
        queues.by_seq[seq] = one
        queues.ready.enter(one)
        queues.ready.limiter(key.name)
        queues.ready._opens(key.name, AT_ONCE)
    queues.ready.reopen(NOW)
    assert len(queues.deferred()) == 1
    queues.ready.reopen(NOW)
    assert queues.deferred() == []


def test_a_job_that_ends_frees_those_that_wait_for_its_limit():
    key = LimitKey("mail", concurrency=1)
    first, second, free = record(1, limit_key=key), record(2, limit_key=key), record(3)
    queues = Queues(first, second, free)
    assert queues.pick() == [1, 3]
    assert queues.deferred() == [2]
    assert not queues.ready.left(free), "it has no limit"
    queues.ready.exit(first)
    assert queues.ready.left(first), "another job may start now"
    queues.ready.reopen(NOW)
    assert queues.pick() == [2]
    assert not queues.ready.left(second), "no job waits for the limit any more"


def test_limits_whose_jobs_wait_for_a_rate_are_listed():
    waits, full = RATE, LimitKey("full", concurrency=1)
    queues = Queues(
        *(record(n, limit_key=waits) for n in range(5)), *(record(n, limit_key=full) for n in range(10, 12))
    )
    assert queues.pick() == [0, 1, 2, 10]
    assert queues.ready.waiting_for_rates(NOW) == [("mail", NOW + 3 * 1000, 3 * 1000)]
    assert queues.ready.waiting_for_rates(NOW + 3 * 1000) == [], "its time has come"


def test_a_rate_without_waiting_jobs_is_not_listed():
    queues = Queues(*(record(n, limit_key=RATE) for n in range(3)))
    assert queues.pick() == [0, 1, 2]
    queues.ready._opens("mail", NOW + 5000)
    assert queues.ready.waiting_for_rates(NOW) == []


def test_a_stalled_rate_is_reset_only_if_it_has_not_moved():
    queues = Queues(*(record(n, limit_key=RATE) for n in range(5)))
    queues.pick()
    queues.ready.free_rates([("mail", NOW + 1), ("unknown", 0)])
    assert queues.ready.limiters["mail"].tat == NOW + 3000
    queues.ready.free_rates([("mail", NOW + 3000)])
    assert (queues.ready.limiters["mail"].tat, queues.ready.next_opening()) == (0, AT_ONCE)


@pytest.mark.parametrize(("idle", "waiting", "kept"), [(True, False, False), (True, True, True), (False, False, True)])
def test_a_limiter_is_removed_once_it_is_idle_and_no_job_waits_for_it(idle, waiting, kept):
    key = LimitKey("mail", concurrency=1)
    queues = Queues()
    queues.ready.limiter("mail").rest_until = NOW - KEPT - 1 if idle else NOW
    if waiting:
        queues.by_seq[1] = record(1, State.BLOCKED, key, waiting_for=Waiting("limit", "mail"))
        queues.ready.enter(queues.by_seq[1])
    queues.ready.tidy(NOW)
    assert ("mail" in queues.ready.limiters) == kept


def test_jobs_that_are_restored_are_found_where_they_were():
    ready, waits = record(1), record(2, waiting_for=Waiting("pause", "work"))
    queues = Queues()
    queues.by_seq |= {1: ready, 2: waits}
    queues.ready.restore([ready, waits])
    assert list(queues.ready.waiting) == [Waiting("pause", "work")]
    queues.ready.exit(waits)
    assert queues.pick() == [1]


def test_finds_is_true_if_a_claim_would_change_something():
    queues = Queues(record(1))
    assert queues.ready.finds("default", ask(), NOW)
    assert not queues.ready.finds("other", ask(), NOW)
    assert not queues.ready.finds("default", ask(limit=0), NOW)
