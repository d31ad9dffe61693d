"""Streams of running jobs: kept like their output, and apart from it."""

from __future__ import annotations

import asyncio

from holdfast import Context, Holdfast, Worker
from holdfast.core.job import Record, State
from holdfast.core.operations import Note, Output, Printed
from holdfast.store.protocol import Batch, Store
from holdfast.testing.build import deletion, failed, says, succeeded
from holdfast.testing.verbs import apply, claim_one, enqueue, job, note, running, settle

from .harness import Harness
from .topic import Topic, requires

LOTS = 1 << 20
NEVER = 3600.0
"""Seconds between polls, which no test waits for."""


def said(claim: Record, at: int, data: bytes, keep: int = LOTS, *, stream: bool = True) -> Note:
    return says(claim, output=Output(at, data, keep, stream))


async def emits(store: Store, claim: Record, at: int, data: bytes, keep: int = LOTS) -> bool:
    return await note(store, said(claim, at, data, keep))


async def streamed(store: Store, id: str, position: int = 0, limit: int = LOTS) -> list[Printed]:
    return await store.output(id, position, limit, stream=True)


async def printed(store: Store, id: str) -> list[bytes]:
    return [piece.data for piece in await store.output(id, 0, LOTS)]


class TestStream(Topic):
    async def test_a_stream_is_read_in_order_from_any_position(self, store: Store) -> None:
        claim = await running(store)
        assert await emits(store, claim, 0, b"1\n")
        assert await emits(store, claim, 2, b'"\xff"\n')
        pieces = [Printed(0, 1, b"1\n", True), Printed(2, 1, b'"\xff"\n', True)]
        assert await streamed(store, claim.id) == pieces
        assert await streamed(store, claim.id, 1) == pieces
        assert await streamed(store, claim.id, 2) == pieces[1:]
        assert await streamed(store, claim.id, 0, 1) == pieces[:1]
        assert await streamed(store, claim.id, 6) == await streamed(store, "unknown") == []

    async def test_stream_and_output_have_their_own_positions_and_limits(self, store: Store) -> None:
        claim = await running(store)
        for at in range(0, 40, 10):
            both = [said(claim, at, b"%010d" % at, 15), said(claim, at, b"x" * 10, LOTS, stream=False)]
            assert list((await store.write(Batch(notes=both))).notes) == [True, True]
        assert [piece.position for piece in await streamed(store, claim.id)] == [20, 30]
        assert await printed(store, claim.id) == [b"x" * 10] * 4
        assert await note(store, said(claim, 40, b"y", 1, stream=False))
        assert [piece.position for piece in await streamed(store, claim.id)] == [20, 30]
        assert await printed(store, claim.id) == [b"y"]

    async def test_a_repeated_piece_is_stored_once(self, store: Store) -> None:
        claim = await running(store)
        await note(store, said(claim, 0, b"output\n", stream=False))
        for _ in range(2):
            assert await emits(store, claim, 0, b"1\n")
        again = [said(claim, 0, b"1\n"), said(claim, 2, b"2\n")]
        answers = await store.write(Batch(notes=again, settles=[succeeded(claim)]))
        assert (list(answers.notes), list(answers.settles)) == ([True, True], [True])
        assert (await job(store, claim.id)).state == State.SUCCEEDED
        assert [piece.data for piece in await streamed(store, claim.id)] == [b"1\n", b"2\n"]
        assert await printed(store, claim.id) == [b"output\n"]

    async def test_a_stale_fence_adds_nothing_to_the_stream_of_the_next_claim(self, store: Store) -> None:
        first = await running(store)
        assert await emits(store, first, 0, b"1\n")
        await settle(store, failed(first))
        assert not await emits(store, first, 2, b"late\n")
        second = await claim_one(store, "bob")
        assert not await emits(store, first, 2, b"late\n")
        forged = await job(store, first.id)
        forged.token = second.token + 1
        assert not await emits(store, forged, 0, b"forged\n")
        assert await emits(store, second, 0, b"2\n")
        assert await streamed(store, first.id) == [Printed(0, 1, b"1\n", True), Printed(2, 2, b"2\n", True)]

    async def test_a_stream_lasts_as_long_as_its_job(self, store: Store, harness: Harness) -> None:
        other = await harness.another(store)
        for keep in (100.0, 0.0):
            claim = await running(store, queue=f"q{keep}")
            await emits(store, claim, 0, b"1\n")
            await settle(store, succeeded(claim, keep=keep))
            assert len(await streamed(other, claim.id)) == (1 if keep else 0)
            if keep:
                assert await apply(store, deletion(await job(store, claim.id)))
            await enqueue(store, claim.id)
            assert await streamed(store, claim.id) == []

    async def test_the_stream_is_no_update_of_the_job(self, store: Store) -> None:
        claim = await running(store)
        before = await job(store, claim.id)
        await emits(store, claim, 0, b"1\n")
        assert await job(store, claim.id) == before

    @requires("hints")
    async def test_readers_elsewhere_get_each_chunk_and_progress_without_a_poll(
        self, store: Store, harness: Harness
    ) -> None:
        other = await harness.another(store)
        here, there = Holdfast(store.sibling(), poll=NEVER), Holdfast(other.sibling(), poll=NEVER)
        seen = asyncio.Event()

        @here.task(name="counts")
        async def counts(ctx: Context) -> None:
            for number in range(3):
                await ctx.emit(number)
                await seen.wait()
                seen.clear()
            for number in range(3):
                ctx.progress(number, 3)
                await seen.wait()
                seen.clear()

        async with here, there, asyncio.timeout(8 * harness.notify_limit):
            handle = there.handle((await counts.enqueue()).id)
            worker = Worker(here)
            working = asyncio.create_task(worker.run())
            chunks, progress = handle.stream(), handle.progress()
            for number in range(3):
                assert (await anext(chunks)).value == number
                seen.set()
            for number in range(3):
                assert (await anext(progress)).done == number
                seen.set()
            assert [chunk async for chunk in chunks] == [one async for one in progress] == []
            worker.stop()
            await working
