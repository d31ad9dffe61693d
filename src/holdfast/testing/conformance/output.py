"""Output of running jobs: written under the fence, the newest kept within a limit, and read by position."""

from __future__ import annotations

from holdfast.core.job import Record, State
from holdfast.core.operations import Output, Printed
from holdfast.store.protocol import Batch, Store
from holdfast.testing.build import deletion, failed, says, succeeded
from holdfast.testing.verbs import apply, claim_one, enqueue, job, note, running, settle

from .topic import Topic

LOTS = 1 << 20


async def prints(store: Store, claim: Record, at: int, data: bytes, keep: int = LOTS) -> bool:
    return await note(store, says(claim, output=Output(at, data, keep)))


async def printed(store: Store, id: str, position: int = 0, limit: int = LOTS) -> list[Printed]:
    return await store.output(id, position, limit)


class TestOutput(Topic):
    async def test_output_is_read_in_order(self, store: Store) -> None:
        claim = await running(store)
        assert await prints(store, claim, 0, b"one\n")
        assert await prints(store, claim, 4, b"two\0\xff\n")
        assert await printed(store, claim.id) == [Printed(0, 1, b"one\n"), Printed(4, 1, b"two\0\xff\n")]

    async def test_a_job_that_printed_nothing_and_one_that_is_not_there_have_no_output(self, store: Store) -> None:
        claim = await running(store)
        assert await printed(store, claim.id) == []
        assert await printed(store, "unknown") == []

    async def test_reading_continues_at_a_position(self, store: Store) -> None:
        claim = await running(store)
        await prints(store, claim, 0, b"one")
        assert await printed(store, claim.id, 3) == []
        await prints(store, claim, 3, b"two")
        assert await printed(store, claim.id, 3) == [Printed(3, 1, b"two")]

    async def test_a_piece_that_reaches_beyond_the_position_is_read_whole(self, store: Store) -> None:
        claim = await running(store)
        await prints(store, claim, 0, b"123456")
        assert await printed(store, claim.id, 5) == [Printed(0, 1, b"123456")]

    async def test_a_read_is_bounded_but_never_empty_while_there_is_more(self, store: Store) -> None:
        claim = await running(store)
        for at in range(0, 40, 10):
            await prints(store, claim, at, b"x" * 10)
        assert [piece.position for piece in await printed(store, claim.id, 0, 1)] == [0]
        assert [piece.position for piece in await printed(store, claim.id, 10, 15)] == [10, 20]

    async def test_only_the_newest_pieces_are_kept(self, store: Store) -> None:
        claim = await running(store)
        for at in range(0, 100, 10):
            assert await prints(store, claim, at, b"%010d" % at, 25)
        kept = await printed(store, claim.id)
        assert [piece.position for piece in kept] == [70, 80, 90]

    async def test_dropped_output_leaves_a_gap(self, store: Store) -> None:
        claim = await running(store)
        await prints(store, claim, 0, b"begin")
        await prints(store, claim, 1000, b"end")
        assert await printed(store, claim.id) == [Printed(0, 1, b"begin"), Printed(1000, 1, b"end")]

    async def test_a_repeated_piece_is_stored_once(self, store: Store) -> None:
        claim = await running(store)
        await prints(store, claim, 0, b"one")
        assert await prints(store, claim, 0, b"one")
        await prints(store, claim, 3, b"two")
        assert await prints(store, claim, 3, b"two")
        assert [piece.data for piece in await printed(store, claim.id)] == [b"one", b"two"]

    async def test_output_of_the_next_attempt_follows_the_last_one(self, store: Store) -> None:
        first = await running(store)
        await prints(store, first, 0, b"tried")
        await settle(store, failed(first))
        second = await claim_one(store, "bob")
        await prints(store, second, 0, b"again")
        await prints(store, second, 5, b"!")
        kept = await printed(store, first.id)
        assert kept == [Printed(0, 1, b"tried"), Printed(5, 2, b"again"), Printed(10, 2, b"!")]

    async def test_output_with_a_stale_fence_is_refused(self, store: Store) -> None:
        claim = await running(store)
        await settle(store, failed(claim))
        again = await claim_one(store, "bob")
        assert not await prints(store, claim, 0, b"late")
        forged = await job(store, claim.id)
        forged.token = again.token + 1
        assert not await prints(store, forged, 0, b"forged")
        assert await printed(store, claim.id) == []

    async def test_a_note_may_have_output_and_other_fields(self, store: Store) -> None:
        claim = await running(store)
        assert await note(store, says(claim, progress=b"1", pid=7, output=Output(0, b"hi", LOTS)))
        noted = await job(store, claim.id)
        assert (noted.progress, noted.pid) == (b"1", 7)
        assert [piece.data for piece in await printed(store, claim.id)] == [b"hi"]

    async def test_the_last_output_comes_before_the_end_in_one_batch(self, store: Store) -> None:
        claim = await running(store)
        said = [says(claim, output=Output(0, b"bye", LOTS))]
        answers = await store.write(Batch(notes=said, settles=[succeeded(claim)]))
        assert (list(answers.notes), list(answers.settles)) == ([True], [True])
        assert (await job(store, claim.id)).state == State.SUCCEEDED
        assert [piece.data for piece in await printed(store, claim.id)] == [b"bye"]

    async def test_a_piece_sent_again_with_the_last_one_and_the_end_is_kept_once(self, store: Store) -> None:
        claim = await running(store)
        await prints(store, claim, 0, b"one")
        said = [says(claim, output=Output(at, data, LOTS)) for at, data in ((0, b"one"), (3, b"two"))]
        answers = await store.write(Batch(notes=said, settles=[succeeded(claim)]))
        assert (list(answers.notes), list(answers.settles)) == ([True, True], [True])
        assert await printed(store, claim.id) == [Printed(0, 1, b"one"), Printed(3, 1, b"two")]

    async def test_output_is_removed_with_its_job(self, store: Store) -> None:
        claim = await running(store)
        await prints(store, claim, 0, b"mine")
        other = await running(store)
        await prints(store, other, 0, b"other")
        await settle(store, succeeded(claim))
        ended = await job(store, claim.id)
        assert await apply(store, deletion(ended))
        await enqueue(store, claim.id)
        assert await printed(store, claim.id) == []
        assert [piece.data for piece in await printed(store, other.id)] == [b"other"]

    async def test_output_of_a_job_without_retention_is_removed(self, store: Store) -> None:
        claim = await running(store)
        await prints(store, claim, 0, b"mine")
        await settle(store, succeeded(claim, keep=0.0))
        assert await printed(store, claim.id) == []
