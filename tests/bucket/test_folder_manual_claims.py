"""Manual claims in a folder, which has no clock of its own: a stale one is recovered, its late writes are refused."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Holdfast, LeaseLost, State
from support.eventually import eventually

LEASE = 0.4
"""Seconds, short enough to be outlasted here."""
WORDS = {
    "complete": lambda claim: claim.complete("late"),
    "fail": lambda claim: claim.fail("late"),
    "release": lambda claim: claim.release(),
    "cancel": lambda claim: claim.cancel(),
    "extend": lambda claim: claim.extend(),
}


@pytest.fixture
def url(tmp_path):
    return f"file://{tmp_path}/jobs"


async def taken_over(app, count):
    """The claims of `count` jobs of another holder, once they are lost. Lost jobs come one by one."""
    claims = []
    async with asyncio.timeout(60):
        while len(claims) < count:
            claims += await app.claim(limit=count, lease=60, wait=1)
    return claims


async def test_a_stale_claim_is_recovered_and_late_writes_are_refused(url):
    async with Holdfast(url) as stale, Holdfast(url) as other:
        for word in WORDS:
            await stale.submit("by hand", b"", id=word)
        old = {claim.job.id: claim for claim in await stale.claim(limit=len(WORDS), lease=LEASE)}
        new = await taken_over(other, len(WORDS))
        for word, say in WORDS.items():
            with pytest.raises(LeaseLost):
                await say(old[word])
        for claim in new:
            assert claim.fence == old[claim.job.id].fence + 1
            await claim.complete("kept")
        for word, say in WORDS.items():
            with pytest.raises(LeaseLost):
                await say(old[word])
        for word in WORDS:
            job = await stale.job(word)
            assert (job.state, job.result, job.failures) == (State.SUCCEEDED, "kept", 1)
            assert [line.outcome for line in job.history] == ["lost", "succeeded"]


async def test_the_claims_of_an_ended_program_are_recovered(url):
    async with Holdfast(url) as gone:
        await gone.submit("by hand", b"", id="a")
        await gone.claim(lease=LEASE)
    async with Holdfast(url) as other:
        [claim] = await taken_over(other, 1)
        await claim.complete()
        assert (await other.job("a")).state == State.SUCCEEDED


async def test_a_renewed_claim_is_never_recovered(url):
    async with Holdfast(url) as alive, Holdfast(url) as other:
        await alive.submit("by hand", b"", id="a")
        [claim] = await alive.claim(lease=LEASE)
        async with claim.kept_alive():
            assert await other.claim(lease=60, wait=5 * LEASE) == []
        await claim.complete("kept")
        assert (await other.job("a")).attempt == 1


async def test_a_stale_claim_that_is_not_recovered_may_be_settled(url):
    async with Holdfast(url) as app:
        await app.submit("by hand", b"", id="a")
        [claim] = await app.claim(lease=LEASE)
        await eventually(lambda: _nobody_holds(app))
        await claim.complete("late, but kept")
        assert (await app.job("a")).result == "late, but kept"


async def _nobody_holds(app):
    return await app.workers() == []
