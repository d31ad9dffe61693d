"""Reading: jobs by id, and page by page, newest first."""

from __future__ import annotations

from holdfast.core.job import State
from holdfast.core.operations import Where
from holdfast.store.protocol import Batch, Store
from holdfast.testing.build import cancellation, change, dead, new_job, succeeded
from holdfast.testing.verbs import apply, claim, claim_one, enqueue, every, insert, job, running, settle

from .harness import Harness
from .topic import Topic


async def ids(store: Store, page: int = 100, **where: object) -> list[str]:
    return [record.id for record in await every(store, Where(**where), page)]  # type: ignore[arg-type]


class TestGet(Topic):
    async def test_jobs_are_answered_in_the_order_of_their_ids(self, store: Store) -> None:
        await insert(store, new_job("a"), new_job("b"), new_job("c"))
        found = await store.get(["c", "unknown", "a", "c"])
        assert [record and record.id for record in found] == ["c", None, "a", "c"]

    async def test_no_ids_give_no_jobs(self, store: Store) -> None:
        assert await store.get([]) == []

    async def test_many_jobs_are_read_at_once(self, store: Store) -> None:
        names = [f"job/{n}" for n in range(1500)]
        await insert(store, *(new_job(name) for name in names))
        assert [record and record.id for record in await store.get(names)] == names

    async def test_a_returned_record_is_a_copy(self, store: Store) -> None:
        await insert(store, new_job("a", meta={"m": 1}))
        before = await job(store, "a")
        claim = await claim_one(store)
        await apply(store, change(claim, meta={"m": 2}))
        await settle(store, succeeded(claim))
        assert (before.state, before.attempt, before.meta) == (State.QUEUED, 0, {"m": 1})
        assert (claim.state, claim.result) == (State.RUNNING, None)


class TestFind(Topic):
    async def test_the_newest_come_first(self, store: Store) -> None:
        await insert(store, new_job("a", priority=-5), new_job("b"), new_job("c", priority=5), new_job("d", delay=60.0))
        assert await ids(store) == ["d", "c", "b", "a"]

    async def test_a_filter_by_state(self, store: Store) -> None:
        await insert(store, new_job("a"), new_job("b"), new_job("c"), new_job("d", delay=60.0))
        a, b = await claim(store, limit=2)
        await store.write(Batch(settles=[succeeded(a), dead(b)]))
        assert await ids(store, states=("succeeded",)) == ["a"]
        assert await ids(store, states=("queued", "scheduled", "dead")) == ["d", "c", "b"]
        assert await ids(store, states=("running",)) == []

    async def test_filters_by_queue_task_and_tag(self, store: Store) -> None:
        await insert(
            store,
            new_job("a", queue="one", task="x", tags=("red", "big")),
            new_job("b", queue="two", task="x", tags=("red",)),
            new_job("c", queue="one", task="y", tags=("reddish",)),
            new_job("d", queue="one", task="x"),
        )
        assert await ids(store, queue="one") == ["d", "c", "a"]
        assert await ids(store, task="x") == ["d", "b", "a"]
        assert await ids(store, tag="red") == ["b", "a"]
        assert await ids(store, tag="big") == ["a"]
        assert await ids(store, queue="one", task="x", tag="red") == ["a"]
        assert await ids(store, queue="two", states=("queued",), task="x") == ["b"]
        assert await ids(store, queue="three") == []

    async def test_a_tag_is_matched_exactly(self, store: Store) -> None:
        await insert(store, new_job("a", tags=("50%",)), new_job("b", tags=("50x",)), new_job("c", tags=('a"b', "a,b")))
        assert await ids(store, tag="50%") == ["a"]
        assert await ids(store, tag="5") == []
        assert await ids(store, tag='a"b') == ["c"]
        assert await ids(store, tag="a") == []

    async def test_a_filter_by_the_time_of_the_end(self, store: Store, harness: Harness) -> None:
        await settle(store, succeeded(await running(store, "early")))
        await harness.pass_time(harness.unit)
        middle = await store.now()
        await settle(store, succeeded(await running(store, "late")))
        await enqueue(store, "living")
        assert await ids(store, finished_before=middle) == ["early"]
        assert await ids(store, finished_before=await store.now() + 1) == ["late", "early"]
        late = await job(store, "late")
        assert await ids(store, finished_before=late.finished_at, states=("succeeded",)) == ["early"]

    async def test_found_jobs_are_whole(self, store: Store) -> None:
        claimed = await running(store, payload=b"[1]", meta={"m": [1]}, tags=("t",), key="k")
        assert (await store.find(Where(), None, 10)).records == [claimed]


class TestPages(Topic):
    async def test_pages_follow_each_other_without_gap_or_overlap(self, store: Store) -> None:
        names = [f"{n:02}" for n in range(23)]
        await insert(store, *(new_job(name) for name in names))
        for size in (1, 5, 22, 23, 24):
            assert await ids(store, page=size) == names[::-1]

    async def test_the_last_page_has_no_cursor(self, store: Store) -> None:
        await insert(store, *(new_job() for _ in range(4)))
        first = await store.find(Where(), None, 2)
        assert (len(first.records), first.cursor is None) == (2, False)
        second = await store.find(Where(), first.cursor, 2)
        assert (len(second.records), second.cursor) == (2, None)

    async def test_an_empty_store_is_one_empty_page(self, store: Store) -> None:
        found = await store.find(Where(), None, 5)
        assert (found.records, found.cursor) == ([], None)

    async def test_pages_are_stable_during_inserts_and_deletions(self, store: Store) -> None:
        await insert(store, *(new_job(f"{n}") for n in range(6)))
        first = await store.find(Where(), None, 2)
        await insert(store, new_job("new-1"), new_job("new-2"))
        await apply(store, cancellation(await job(store, "4"), keep=0.0))
        await settle(store, succeeded(await claim_one(store), keep=0.0))
        second = await store.find(Where(), first.cursor, 2)
        third = await store.find(Where(), second.cursor, 2)
        pages = [[record.id for record in page.records] for page in (first, second, third)]
        assert pages == [["5", "4"], ["3", "2"], ["1"]]
        assert third.cursor is None

    async def test_pages_of_a_filter_have_only_matching_jobs(self, store: Store) -> None:
        await insert(
            store, *(new_job(f"{n:02}", queue="odd" if n % 2 else "even", tags=(f"t{n % 3}",)) for n in range(18))
        )
        assert await ids(store, page=2, queue="odd") == [f"{n:02}" for n in range(17, 0, -2)]
        assert await ids(store, page=2, tag="t0") == [f"{n:02}" for n in range(15, -1, -3)]
        assert await ids(store, page=2, tag="t0", queue="odd") == ["15", "09", "03"]

    async def test_a_filter_that_few_of_many_jobs_match_gives_each_of_them_once(self, store: Store) -> None:
        rare = {"0", "1400", "1401", "2499"}
        await insert(
            store,
            *(
                new_job(f"{n}", queue="rare", task="odd", tags=("t",)) if str(n) in rare else new_job(f"{n}")
                for n in range(2500)
            ),
        )
        for where in (
            {"queue": "rare"},
            {"task": "odd"},
            {"tag": "t"},
            {"queue": "rare", "states": ("queued", "dead")},
        ):
            for size in (1, 2, 100):
                assert await ids(store, page=size, **where) == ["2499", "1401", "1400", "0"], (where, size)
