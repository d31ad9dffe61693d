"""How a claim ends by the rules of the app and of its task, and what is refused before it starts."""

import asyncio
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from holdfast import Backoff, Holdfast, LeaseLost, StoreUnavailable
from holdfast.client.claims import ManualClaims
from holdfast.core.clock import Entropy
from holdfast.core.lifecycle import Outcome, Rules
from holdfast.store.reference.memory import MemoryStore
from holdfast.testing import ManualClock
from holdfast.testing.verbs import running

RULES = Rules(Backoff(base=10, factor=1, jitter=0), max_crashes=3, retention=60, key_retention=90)


@pytest.mark.parametrize(
    ("options", "delay", "keep"),
    [
        (None, 10, 60),
        ({"retry": None, "retention": None}, 10, 60),
        ({"retry": Backoff(base=5, factor=1, jitter=0), "retention": None}, 5, 60),
        ({"retry": lambda error, attempt: 1.0, "retention": None}, 10, 60),
        ({"retry": None, "retention": 0.0}, 10, 0.0),
        ({"retry": Backoff(base=5, factor=1, jitter=0), "retention": 7.0}, 5, 7.0),
    ],
)
async def test_a_task_has_its_own_back_off_and_retention_where_it_says_so(options, delay, keep):
    tasks = {} if options is None else {"work": SimpleNamespace(**options)}
    claims = ManualClaims(SimpleNamespace(opened=None), SimpleNamespace(tasks=tasks))
    session = SimpleNamespace(rules=RULES, entropy=Entropy(1))
    record = await running(MemoryStore(), "job")
    failed = claims.settlement(session, record, Outcome.failed("Boom"))
    succeeded = claims.settlement(session, record, Outcome.succeeded(None), expected_heartbeat=4)
    assert (failed.delay, failed.expected_heartbeat) == (delay, None)
    assert (succeeded.keep, succeeded.expected_heartbeat) == (keep, 4)


@contextmanager
def refused_ends(store):
    """A store that writes everything but the ends of claims."""
    write = store.write

    async def refuse_ends(batch):
        if batch.settles:
            raise StoreUnavailable("away")
        return await write(batch)

    store.write = refuse_ends
    yield
    store.write = write


async def test_a_claim_of_expired_jobs_alone_whose_ends_cannot_be_written_says_why():
    clock = ManualClock()
    store = MemoryStore(clock)
    async with Holdfast(store, clock=clock) as app:

        @app.task(expires=1.0)
        async def work() -> None: ...

        await work.enqueue()
        clock.advance(2)
        with refused_ends(store), pytest.raises(StoreUnavailable, match="away"):
            await app.claim()


async def test_a_lease_that_is_lost_after_an_end_that_was_not_written_interrupts_the_block():
    store = MemoryStore()
    async with Holdfast(store) as app:
        await app.submit("work", b"")
        [claim] = await app.claim(lease=0.3)

        async def consume():
            async with claim.kept_alive():
                with refused_ends(store), pytest.raises(StoreUnavailable, match="away"):
                    await claim.complete()
                await app.handle(claim.job.id).mark_failed("a monitor says it is lost")
                await asyncio.sleep(5)

        with pytest.raises(LeaseLost):
            await consume()


@pytest.mark.parametrize(("seconds", "heartbeats"), [(4.9, 0), (5, 1)])
async def test_an_answer_after_half_of_the_lease_is_confirmed_by_a_heartbeat(seconds, heartbeats):
    clock = ManualClock()
    store, seen = MemoryStore(clock), []
    write, heartbeat = store.write, store.heartbeat

    async def late(batch):
        answers = await write(batch)
        clock.advance(seconds if batch.asks else 0)
        return answers

    async def counted(holders):
        seen.append(holders)
        return await heartbeat(holders)

    async with Holdfast(store, clock=clock) as app:
        await app.submit("work", b"")
        store.write, store.heartbeat = late, counted
        assert len(await app.claim(lease=10)) == 1
        assert len(seen) == heartbeats
