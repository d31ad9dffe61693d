"""Manual claims in a folder, which has no clock of its own: a stale one is taken over, its late words are refused."""

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
    """The claims of `count` jobs that somebody else holds, once they are lost. Lost jobs come one by one."""
    claims = []
    async with asyncio.timeout(60):
        while len(claims) < count:
            claims += await app.claim(limit=count, lease=60, wait=1)
    return claims


async def test_a_stale_claim_is_taken_over_and_every_late_word_is_refused(url):
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


async def test_the_claims_of_a_program_that_has_ended_are_taken_over(url):
    async with Holdfast(url) as gone:
        await gone.submit("by hand", b"", id="a")
        await gone.claim(lease=LEASE)
    async with Holdfast(url) as other:
        [claim] = await taken_over(other, 1)
        await claim.complete()
        assert (await other.job("a")).state == State.SUCCEEDED


async def test_a_claim_that_is_kept_alive_is_never_taken_over(url):
    async with Holdfast(url) as alive, Holdfast(url) as other:
        await alive.submit("by hand", b"", id="a")
        [claim] = await alive.claim(lease=LEASE)
        async with claim.kept_alive():
            assert await other.claim(lease=60, wait=5 * LEASE) == []
        await claim.complete("kept")
        assert (await other.job("a")).attempt == 1


async def test_a_stale_claim_that_nobody_has_taken_over_may_still_be_settled(url):
    async with Holdfast(url) as app:
        await app.submit("by hand", b"", id="a")
        [claim] = await app.claim(lease=LEASE)
        await eventually(lambda: _nobody_holds(app))
        await claim.complete("late, but kept")
        assert (await app.job("a")).result == "late, but kept"


async def _nobody_holds(app):
    return await app.workers() == []
