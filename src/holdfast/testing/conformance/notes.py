"""Notes: a running job writes progress, checkpoints and meta under its fence."""

from __future__ import annotations

from holdfast.core.job import State
from holdfast.store.protocol import Batch, Store
from holdfast.testing.build import as_dict, change, failed, says, succeeded
from holdfast.testing.verbs import apply, claim_one, enqueue, job, note, running, settle

from .topic import Topic


class TestNotes(Topic):
    async def test_a_note_sets_its_fields(self, store: Store) -> None:
        claim = await running(store)
        assert await note(store, says(claim, progress=b"[1,2]", checkpoint=b'{"at": 1}', pid=4711))
        noted = await job(store, claim.id)
        assert (noted.progress, noted.checkpoint, noted.pid) == (b"[1,2]", b'{"at": 1}', 4711)

    async def test_a_note_keeps_other_fields(self, store: Store) -> None:
        claim = await running(store, meta={"m": 1})
        await note(store, says(claim, progress=b"1", checkpoint=b"2", pid=3))
        before = await job(store, claim.id)
        assert await note(store, says(claim, progress=b"9"))
        changed = ("progress", "changed_at")
        assert as_dict(await job(store, claim.id), *changed) == as_dict(before, *changed)

    async def test_an_empty_note_is_accepted_and_changes_nothing(self, store: Store) -> None:
        claim = await running(store)
        assert await note(store, says(claim))
        assert await job(store, claim.id) == claim

    async def test_meta_of_a_note_is_merged(self, store: Store) -> None:
        claim = await running(store, meta={"a": 1, "b": {"x": 1}})
        assert await note(store, says(claim, meta={"b": {"y": 2}, "c": None}))
        assert (await job(store, claim.id)).meta == {"a": 1, "b": {"y": 2}, "c": None}

    async def test_two_notes_of_a_batch_are_applied_in_order(self, store: Store) -> None:
        claim = await running(store)
        answers = await store.write(Batch(notes=[says(claim, progress=b"1"), says(claim, progress=b"2")]))
        assert list(answers.notes) == [True, True]
        assert (await job(store, claim.id)).progress == b"2"

    async def test_a_note_is_applied_before_the_end_in_its_batch(self, store: Store) -> None:
        claim = await running(store)
        answers = await store.write(Batch(notes=[says(claim, progress=b"all")], settles=[succeeded(claim)]))
        assert (list(answers.notes), list(answers.settles)) == ([True], [True])
        ended = await job(store, claim.id)
        assert (ended.progress, ended.state) == (b"all", State.SUCCEEDED)

    async def test_a_note_after_the_end_is_refused(self, store: Store) -> None:
        claim = await running(store)
        await settle(store, succeeded(claim))
        assert not await note(store, says(claim, progress=b"late"))
        assert (await job(store, claim.id)).progress is None

    async def test_a_note_about_a_waiting_or_unknown_job_is_refused(self, store: Store) -> None:
        waiting = await enqueue(store)
        assert not await note(store, says(waiting, progress=b"x"))
        waiting.id = "unknown"
        assert not await note(store, says(waiting, progress=b"x"))

    async def test_the_next_attempt_can_read_the_last_checkpoint(self, store: Store) -> None:
        claim = await running(store)
        await note(store, says(claim, checkpoint=b"half", progress=b"50", meta={"seen": 1}))
        await settle(store, failed(claim))
        again = await claim_one(store, "bob")
        assert (again.checkpoint, again.progress, again.meta) == (b"half", b"50", {"seen": 1})
        assert again.pid is None

    async def test_a_late_checkpoint_is_ignored(self, store: Store) -> None:
        claim = await running(store)
        first, second = (says(claim, checkpoint=data, saves=n) for n, data in enumerate((b"first", b"second"), 1))
        assert [await note(store, said) for said in (first, second, first)] == [True, True, True]
        kept = await job(store, claim.id)
        assert (kept.checkpoint, kept.saves) == (b"second", 2)
        answers = await store.write(Batch(notes=[says(kept, checkpoint=b"third"), second, says(kept, pid=7)]))
        assert list(answers.notes) == [True, True, True]
        kept = await job(store, claim.id)
        assert (kept.checkpoint, kept.saves, kept.pid) == (b"third", 3, 7)

    async def test_checkpoints_are_numbered_over_all_claims(self, store: Store) -> None:
        claim = await running(store)
        assert await note(store, says(claim, checkpoint=b"half"))
        await settle(store, failed(claim))
        again = await claim_one(store, "bob")
        assert again.saves == 1
        assert await note(store, says(again, checkpoint=b"more"))
        await settle(store, failed(again))
        assert await apply(store, change(await job(store, claim.id), checkpoint=None))
        last = await claim_one(store, "cat")
        assert (last.checkpoint, last.saves) == (None, 2)
        assert await note(store, says(last, checkpoint=b"anew"))
        assert (await job(store, claim.id)).checkpoint == b"anew"

    async def test_an_ended_job_keeps_its_pid_and_its_notes(self, store: Store) -> None:
        claim = await running(store)
        await note(store, says(claim, pid=7, checkpoint=b"half"))
        await settle(store, succeeded(claim))
        ended = await job(store, claim.id)
        assert (ended.pid, ended.checkpoint) == (7, b"half")
