"""Hostile text: every accepted text is stored and found byte for byte."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.operations import Inserted, Where
from holdfast.store.protocol import Store, records_of
from holdfast.testing.build import dead, new_job, says, succeeded
from holdfast.testing.verbs import claim_one, enqueue, every, insert, job, note, running, settle

from .topic import Topic

WORDS = (
    "snow ☃ and 🦀 and e\u0301",
    "'; DROP TABLE jobs; --",
    '100%_\\ "quoted" `tick` {brace} [bracket] $1 ?1 :name',
    "tab\tnewline\nreturn\rbell\x07",
    "\u202eright to left\u202c",
    "  spaces around  ",
    "a/b:c*d.e|f",
    "x" * 5000,
)
BYTES = (b"", b"\x00", b"\x00\xff\xfe'\"\n", bytes(range(256)), b"{" * 1000)

every_word = pytest.mark.parametrize("word", WORDS, ids=range(len(WORDS)))
every_bytes = pytest.mark.parametrize("data", BYTES, ids=range(len(BYTES)))


class TestHostileText(Topic):
    @every_word
    async def test_text_is_kept_in_ids_queues_tasks_keys_tags_and_meta(self, store: Store, word: str) -> None:
        new = new_job(word, queue=word, task=word, key=word, tags=(word, "plain"), meta={word: [word]}, codec=word)
        assert await insert(store, new) == [Inserted("created", word)]
        assert await insert(store, new_job("other", task=word, key=word)) == [Inserted("existing", word)]
        claimed = await claim_one(store, word, word, tasks=(word,))
        assert (claimed.id, claimed.queue, claimed.task, claimed.key, claimed.codec) == (word, word, word, word, word)
        assert (claimed.tags, claimed.meta, claimed.holder) == ((word, "plain"), {word: [word]}, word)
        for where in (Where(queue=word), Where(task=word), Where(tag=word), Where(queue=word, task=word, tag=word)):
            assert [record.id for record in await every(store, where)] == [word]
        assert [queue.name for queue in await store.stats()] == [word]
        assert [seen.jobs for seen in await store.holders()] == [(word,)]
        assert await settle(store, dead(claimed, error=word, traceback=word))
        ended = await job(store, word)
        assert (ended.error, ended.traceback) == (word, word)

    @every_word
    async def test_text_is_kept_in_names_of_records(self, store: Store, word: str) -> None:
        assert await store.put_record(word, word, word.encode(), expect=0)
        assert (await records_of(store, word))[word].value == word.encode()

    @every_word
    async def test_a_queue_of_any_name_can_be_paused(self, store: Store, word: str) -> None:
        await enqueue(store, queue=word)
        await store.put_record("pause", word, b"{}")
        assert [(queue.name, queue.paused) for queue in await store.stats()] == [(word, True)]

    @every_bytes
    async def test_bytes_are_kept_in_payload_result_progress_and_checkpoint(self, store: Store, data: bytes) -> None:
        claimed = await running(store, payload=data)
        assert claimed.payload == data
        assert await note(store, says(claimed, progress=data, checkpoint=data))
        assert await settle(store, succeeded(claimed, result=data))
        ended = await job(store, claimed.id)
        assert (ended.payload, ended.result, ended.progress, ended.checkpoint) == (data, data, data, data)

    async def test_a_mebibyte_is_kept(self, store: Store) -> None:
        data = bytes(range(256)) * 4096
        claimed = await running(store, payload=data)
        assert claimed.payload == data
        assert await settle(store, succeeded(claimed, result=data))
        assert (await job(store, claimed.id)).result == data

    async def test_many_tags_are_kept(self, store: Store) -> None:
        tags = tuple(f"tag-{n}-{'y' * 200}" for n in range(200))
        record = await enqueue(store, tags=tags)
        assert record.tags == tags
        assert [found.id for found in await every(store, Where(tag=tags[77]))] == [record.id]

    async def test_numbers_and_null_are_kept_in_meta(self, store: Store) -> None:
        meta: dict[str, Any] = {
            "big": 2**53,
            "small": -1,
            "half": 0.5,
            "none": None,
            "yes": True,
            "list": [],
            "dict": {},
            "": "",
        }
        assert (await enqueue(store, meta=meta)).meta == meta
