"""Commands with large words are sent in parts, without a copy of these words."""

from holdfast.store.redis import resp
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


def test_small_words_beside_a_large_one_are_copied_once(monkeypatch):
    words, packed = (*[b"p" * 80] * 1000, b"a" * SENT_ALONE, *[b"q" * 80] * 1000), []
    monkeypatch.setattr(resp, "pack_command", lambda some: packed.append(len(some)) or pack_command(some))
    assert b"".join(in_parts(words)) == pack_command(words)
    assert packed == [1000, 1000], "not each of them with a copy of those before it"


async def test_large_and_small_jobs_of_one_write_arrive(store):
    payloads = {"small": b"{}", "large": b"a" * SENT_ALONE, "last": b"\r\n" * SENT_ALONE}
    await insert(store, *(new_job(id, payload=payload) for id, payload in payloads.items()))
    assert {record.id: record.payload for record in await every(store)} == payloads
