"""Records: small shared values, changed by compare-and-set."""

from __future__ import annotations

import asyncio

from holdfast.client.store_id import store_id
from holdfast.store.protocol import Store, records_of

from .harness import Harness
from .topic import Topic


class TestRecords(Topic):
    async def test_a_kind_that_was_never_used_is_empty(self, store: Store) -> None:
        assert await records_of(store, "config") == {}

    async def test_a_record_is_kept_byte_for_byte(self, store: Store) -> None:
        for value in (b"{}", b"", b'{"x": "\xc3\xa9"}', b"x" * 100_000):
            assert await store.put_record("config", "a", value)
            assert (await records_of(store, "config"))["a"].value == value

    async def test_kinds_and_names_are_separate(self, store: Store) -> None:
        await store.put_record("config", "a", b"1")
        await store.put_record("config", "b", b"2")
        await store.put_record("token", "a", b"3")
        found = await store.records(["token", "config", "unused"])
        values = {kind: {name: one.value for name, one in kept.items()} for kind, kept in found.items()}
        assert values == {"token": {"a": b"3"}, "config": {"a": b"1", "b": b"2"}, "unused": {}}
        assert await records_of(store, "config") == found["config"]
        assert await store.records([]) == {}

    async def test_every_set_gives_a_new_version(self, store: Store) -> None:
        versions: list[int] = []
        for _ in range(3):
            await store.put_record("config", "a", b"same")
            versions.append((await records_of(store, "config"))["a"].version)
        assert versions == sorted(set(versions))
        assert versions[0] > 0

    async def test_a_set_with_the_current_version_is_made(self, store: Store) -> None:
        await store.put_record("config", "a", b"1")
        version = (await records_of(store, "config"))["a"].version
        assert await store.put_record("config", "a", b"2", expect=version)
        assert (await records_of(store, "config"))["a"].value == b"2"

    async def test_a_set_with_an_older_version_is_refused(self, store: Store) -> None:
        await store.put_record("config", "a", b"1")
        version = (await records_of(store, "config"))["a"].version
        await store.put_record("config", "a", b"2")
        assert not await store.put_record("config", "a", b"3", expect=version)
        assert not await store.put_record("config", "a", None, expect=version)
        assert (await records_of(store, "config"))["a"].value == b"2"

    async def test_version_0_means_that_there_is_none(self, store: Store) -> None:
        assert await store.put_record("config", "a", b"1", expect=0)
        assert not await store.put_record("config", "a", b"2", expect=0)
        assert (await records_of(store, "config"))["a"].value == b"1"

    async def test_a_version_of_a_record_that_is_not_there_is_refused(self, store: Store) -> None:
        assert not await store.put_record("config", "a", b"1", expect=3)
        assert await records_of(store, "config") == {}

    async def test_a_record_can_be_removed(self, store: Store) -> None:
        await store.put_record("config", "a", b"1")
        version = (await records_of(store, "config"))["a"].version
        assert await store.put_record("config", "a", None, expect=version)
        assert await records_of(store, "config") == {}
        assert await store.put_record("config", "a", b"2", expect=0)

    async def test_a_version_is_not_given_again_after_a_removal(self, store: Store) -> None:
        seen: list[int] = []
        for _ in range(3):
            await store.put_record("config", "a", b"1")
            seen.append((await records_of(store, "config"))["a"].version)
            await store.put_record("config", "a", None)
        assert len(set(seen)) == 3
        await store.put_record("config", "a", b"2", expect=0)
        assert not await store.put_record("config", "a", None, expect=seen[0]), "that was another record of its name"

    async def test_removing_a_missing_record_is_no_error(self, store: Store) -> None:
        assert await store.put_record("config", "a", None)

    async def test_a_sibling_sees_a_record_at_once(self, store: Store, harness: Harness) -> None:
        other = await harness.another(store)
        await store.put_record("config", "a", b"1")
        assert (await records_of(other, "config"))["a"].value == b"1"

    async def test_concurrent_callers_get_the_same_store_id(self, store: Store, harness: Harness) -> None:
        others = [await harness.another(store) for _ in range(3)]
        first, *rest = await asyncio.gather(*(store_id(each) for each in (store, *others)))
        assert set(rest) == {first}
        assert await store_id(store) == first
