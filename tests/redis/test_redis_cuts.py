"""The client dies with its n-th command, for every n: every acknowledged job reaches an end, and none is in limbo."""

import asyncio
import itertools
from collections import Counter

import pytest
from key_census import strays
from proxy import Proxy

from holdfast.core.errors import OutcomeUnknown, StoreUnavailable
from holdfast.core.job import TERMINAL
from holdfast.store.protocol import Batch
from holdfast.testing.build import ask, holder, new_job, succeeded, swept
from holdfast.testing.verbs import claim, every, gone, insert
from support.late_claims import run_with_a_late_claim
from support.sizes import LONG

JOBS = 100
_runs = itertools.count(1)


async def live(store, acknowledged, finished, name) -> None:
    """A whole client: enqueue a hundred jobs by tens, then run them by tens, with heartbeats between."""
    me = holder(name, 0.05)
    for first in range(0, JOBS, 10):
        jobs = [new_job(f"{n}", key=f"key-{n}") for n in range(first, first + 10)]
        await store.write(Batch(inserts=jobs))
        acknowledged.update(job.id for job in jobs)
    ends = []
    while True:
        answers = await store.write(Batch(settles=ends, asks=[ask(me, limit=10)]))
        finished.update(end.id for end, written in zip(ends, answers.settles, strict=True) if written)
        records = answers.asks[0].records
        if not records:
            break
        ends = [succeeded(record) for record in records]
        await store.heartbeat([me])
    await store.leave([name])
    await store.tidy(100)


async def finish(store, finished) -> None:
    """Whoever comes after: recovers what was lost, and runs what is left."""
    async with asyncio.timeout(20):
        while True:
            for lost in await store.expired(1000):
                await store.write(Batch(settles=[swept(lost)]))
            for record in await claim(store, "heir", limit=50):
                [written] = (await store.write(Batch(settles=[succeeded(record)]))).settles
                if written:
                    finished[record.id] += 1
            if all(record.state in TERMINAL for record in await every(store)):
                return
            await asyncio.sleep(0.02)


@pytest.mark.sized
@pytest.mark.parametrize("after_effect", [False, True], ids=["not sent", "not answered"])
async def test_a_client_that_dies_with_any_command_leaves_nothing_in_limbo(open_at, server, prefix, after_effect):
    for n in itertools.count(1, 1 if LONG else 3):
        name = f"{prefix}-{next(_runs)}"
        acknowledged, finished = set(), Counter()
        async with Proxy(server.port, cut_at=n, after_effect=after_effect) as proxy:
            client = await open_at(server.url(name, durability="none").replace(str(server.port), str(proxy.port)))
            try:
                await live(client, acknowledged, finished, "mayfly")
            except OutcomeUnknown:
                await client.close()
            else:
                assert n > 25, "a whole life has more commands than that"
                break
        heir = await open_at(server.url(name, durability="none"))
        await finish(heir, finished)
        there = {record.id: record.state for record in await every(heir)}
        assert acknowledged <= there.keys(), f"lost at command {n}"
        assert set(there.values()) <= {"succeeded"}, f"in limbo at command {n}"
        assert max(finished.values(), default=0) <= 1, f"finished twice at command {n}"
        await heir.leave(["heir", "mayfly"])
        await heir.tidy(1000)
        assert await strays(heir, server) == []
        assert await heir.holders() == []
        await heir.close()
        server.clear(name)


async def test_a_batch_whose_answer_was_lost_is_sent_again_and_done_once(open_at, server, prefix):
    async with Proxy(server.port, cut_at=1, after_effect=True) as proxy:
        store = await open_at(server.url(prefix, durability="none").replace(str(server.port), str(proxy.port)))
        batch = Batch(inserts=[new_job("a"), new_job("b", key="k"), new_job("c", nonce=7)])
        with pytest.raises(OutcomeUnknown):
            await store.write(batch)
        with pytest.raises(StoreUnavailable):  # the line is dead: this was certainly not sent
            await store.write(batch)
        proxy.mend()
        assert [answer.outcome for answer in (await store.write(batch)).inserts] == ["created"] * 3
        assert len(await every(store)) == 3


async def test_a_reading_that_lost_its_connection_is_made_again(open_at, server, prefix):
    async with Proxy(server.port) as proxy:
        store = await open_at(server.url(prefix, durability="none").replace(str(server.port), str(proxy.port)))
        await insert(store, new_job("a"))
        for _ in range(3):
            proxy.cut()
            proxy.mend()
            assert not await gone(store, "a")


@pytest.mark.parametrize("limited", [False, True], ids=["plain", "limited to one"])
async def test_a_job_whose_claim_is_answered_late_runs_once(server, prefix, limited):
    url = server.url(prefix, durability="none")
    async with Proxy(server.port) as proxy:
        slow = url.replace(str(server.port), str(proxy.port))
        assert await run_with_a_late_claim(slow, url, proxy, limited=limited) == (["late"], "succeeded")
