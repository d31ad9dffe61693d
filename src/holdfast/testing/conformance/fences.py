"""Fences: only its own fence and token end or extend a claim."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from holdfast.core.job import Record, State
from holdfast.core.operations import Settlement
from holdfast.store.protocol import Store
from holdfast.testing.build import (
    cancelled,
    change,
    dead,
    deletion,
    failed,
    new_job,
    released,
    retrial,
    says,
    snoozed,
    succeeded,
)
from holdfast.testing.verbs import apply, claim_one, enqueue, insert, job, note, running, settle

from .topic import Topic

End = Callable[[Record], Settlement]


def snoozed_a_while(claim: Record) -> Settlement:
    return snoozed(claim, delay=60.0)


def succeeded_and_removed(claim: Record) -> Settlement:
    return succeeded(claim, keep=0.0)


def dead_and_removed(claim: Record) -> Settlement:
    return dead(claim, keep=0.0)


every_end = pytest.mark.parametrize(
    "end",
    [succeeded, succeeded_and_removed, failed, dead, dead_and_removed, cancelled, released, snoozed_a_while],
    ids=lambda end: end.__name__,
)


async def taken_over(store: Store) -> tuple[Record, Record]:
    """One job, claimed by ann, released, and claimed by bob: the ended claim, and the current one."""
    first = await running(store, by="ann")
    assert await settle(store, released(first))
    return first, await claim_one(store, "bob")


def forged(claim: Record, **parts: int) -> Record:
    return msgspec.structs.replace(claim, **parts)


class TestFences(Topic):
    @every_end
    async def test_settle_refuses_a_claim_that_was_taken_over(self, store: Store, end: End) -> None:
        first, second = await taken_over(store)
        assert not await settle(store, end(first))
        assert await job(store, second.id) == second

    @every_end
    async def test_settle_refuses_a_stale_fence(self, store: Store, end: End) -> None:
        first, second = await taken_over(store)
        assert not await settle(store, end(forged(second, fence=first.fence)))
        assert await job(store, second.id) == second

    @every_end
    async def test_settle_refuses_a_higher_fence(self, store: Store, end: End) -> None:
        claim = await running(store)
        assert not await settle(store, end(forged(claim, fence=claim.fence + 1)))
        assert await job(store, claim.id) == claim

    @every_end
    async def test_settle_refuses_a_stale_token(self, store: Store, end: End) -> None:
        first, second = await taken_over(store)
        assert not await settle(store, end(forged(second, token=first.token)))
        assert await job(store, second.id) == second

    async def test_note_refuses_a_stale_fence(self, store: Store) -> None:
        first, second = await taken_over(store)
        assert not await note(
            store, says(second, fence=first.fence, progress=b"x", checkpoint=b"y", pid=1, meta={"m": 1})
        )
        assert await job(store, second.id) == second

    async def test_note_refuses_a_stale_token(self, store: Store) -> None:
        first, second = await taken_over(store)
        assert not await note(
            store, says(second, token=first.token, progress=b"x", checkpoint=b"y", pid=1, meta={"m": 1})
        )
        assert await job(store, second.id) == second

    async def test_the_current_claim_can_be_settled_after_refusals(self, store: Store) -> None:
        first, second = await taken_over(store)
        assert not await settle(store, dead(first))
        assert await settle(store, succeeded(second))
        assert (await job(store, second.id)).state == State.SUCCEEDED

    async def test_a_late_holder_may_settle_a_claim_that_has_not_ended(self, store: Store) -> None:
        claim = await running(store)
        await store.leave(["ann"])
        assert [lost.record.id for lost in await store.expired(9)] == [claim.id]
        assert await settle(store, succeeded(claim))

    @every_end
    async def test_settle_is_refused_after_a_delete(self, store: Store, end: End) -> None:
        claim = await running(store)
        assert await apply(store, deletion(claim))
        assert not await settle(store, end(claim))
        assert await store.get([claim.id]) == [None]

    async def test_a_claim_of_a_deleted_job_cannot_settle_a_new_job_of_its_id(self, store: Store) -> None:
        await insert(store, new_job("same", nonce=1))
        old = await claim_one(store)
        await apply(store, deletion(old))
        await insert(store, new_job("same", nonce=2))
        new = await claim_one(store, "bob")
        assert not await settle(store, succeeded(forged(old, seq=new.seq)))
        assert not await note(store, says(forged(old, seq=new.seq), progress=b"x"))
        assert await job(store, "same") == new

    async def test_a_holder_cannot_settle_a_claim_that_an_operator_ended(self, store: Store) -> None:
        claim = await running(store)
        assert await apply(store, change(claim, state=State.FAILED, delay=60.0, error="monitor: gone"))
        assert not await settle(store, succeeded(claim))
        assert not await note(store, says(claim, progress=b"x"))
        assert (await job(store, claim.id)).error == "monitor: gone"

    async def test_a_claim_from_before_a_retry_is_refused(self, store: Store) -> None:
        claim = await running(store)
        await settle(store, dead(claim))
        await apply(store, retrial(await job(store, claim.id)))
        assert not await settle(store, succeeded(claim))
        again = await claim_one(store, "bob")
        assert again.fence > claim.fence
        assert not await settle(store, succeeded(claim))

    @pytest.mark.parametrize("wish", [{"cancel": True}, {"meta": {"seen": True}}], ids=["cancel", "meta"])
    async def test_a_change_of_other_fields_keeps_the_claim(self, store: Store, wish: dict[str, Any]) -> None:
        claim = await running(store)
        assert await apply(store, change(claim, **wish))
        assert await settle(store, succeeded(claim))

    async def test_a_settlement_changes_only_its_job(self, store: Store) -> None:
        claim = await running(store, queue="one")
        other = await running(store, queue="two")
        bystander = await enqueue(store)
        assert await settle(store, succeeded(claim))
        assert await job(store, other.id) == other
        assert await job(store, bystander.id) == bystander
