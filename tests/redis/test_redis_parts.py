"""Commands with large words are sent in parts, without a copy of these words."""

import time

from holdfast.store.redis.resp import SENT_ALONE, in_parts, pack_command
from holdfast.testing.build import new_job
from holdfast.testing.verbs import every, insert


def test_the_parts_of_a_command_are_what_is_sent_in_one_piece():
    large, larger = b"a" * SENT_ALONE, b"\r\n$" * SENT_ALONE
    for words in (
        ("EVALSHA", b"x", 7, "é", large),
        (large, larger, b"", 0, "large" * SENT_ALONE),
        (b"a", larger, b"b", large),
    ):
        parts = in_parts(words)
        assert b"".join(parts) == pack_command(words)
        assert all(any(part is word for part in parts) for word in words if word in (large, larger))


def test_small_words_beside_a_large_one_are_copied_once():
    words = (*[b"p" * 8000] * 1000, b"a" * SENT_ALONE)
    begun = time.process_time()
    assert b"".join(in_parts(words)) == pack_command(words)
    assert time.process_time() - begun < 0.5  # over a second if each word copies those before it


async def test_large_and_small_jobs_of_one_write_arrive(store):
    payloads = {"small": b"{}", "large": b"a" * SENT_ALONE, "last": b"\r\n" * SENT_ALONE}
    await insert(store, *(new_job(id, payload=payload) for id, payload in payloads.items()))
    assert {record.id: record.payload for record in await every(store)} == payloads
