"""Many jobs at once: search, count, change what matches, errors in groups, and what charts show."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast import Backoff, InvalidJob, State, Worker
from holdfast.app import parts_of
from holdfast.client import bulk, errors
from holdfast.client.error_groups import masked
from holdfast.client.search import WINDOW, Filter
from holdfast.client.timeseries import MAX_RECORDED_QUEUES
from support.workers import work_off


@pytest.fixture
def tasks(app):
    @app.task
    def resize(path: str, width: int = 100) -> str:
        return path

    @app.task(queue="money", max_attempts=1, tags=["card"])
    def charge(order: int) -> None:
        raise ValueError(f"order {order} has no 'billing' address")

    @app.task(queue="money", max_attempts=3, retry=Backoff(base=600))
    def flaky(order: int) -> None:
        raise ConnectionError(f"host 10.0.0.{order} is down")

    return parts_of(app).registry.tasks


async def ids(app, **parts):
    return [job.id for job in (await app.bulk.search(Filter(**parts))).jobs]


async def test_a_search_reads_id_key_task_error_and_arguments(app, tasks):
    async with app:
        one = await tasks["resize"].using(id="job-ONE", key="key-of-one").enqueue("Straße/äpfel.raw")
        two = await tasks["resize"].enqueue('say "hello"\n')
        bad = await tasks["charge"].enqueue(7001)
        await work_off(app)
        assert await ids(app, text="job-one") == [one.id]
        assert await ids(app, text="KEY-OF") == [one.id]
        assert await ids(app, text="ÄPFEL") == [one.id]
        assert await ids(app, text="strasse") == [one.id]
        assert await ids(app, text='"hello"\n') == [two.id]
        assert await ids(app, text="has no 'billing'") == [bad.id]
        assert await ids(app, text="resize") == [two.id, one.id]
        assert await ids(app, text="resize", state="dead") == []
        assert await ids(app, text="nothing like it") == []


async def test_a_search_finds_an_id_a_key_and_a_worker_however_old_the_job_is(app, tasks, monkeypatch):
    monkeypatch.setattr(bulk, "WINDOW", 5)
    async with app:
        keyed = await tasks["resize"].using(key="order-7").enqueue("a")
        [claim] = await app.claim(["default"])
        old = await tasks["charge"].enqueue(1)
        await app.enqueue_many([app.call(tasks["resize"], f"{n}") for n in range(20)])
        [worker] = await app.workers()
        for text in (keyed.id, f" {keyed.id} ", "order-7", worker.id):
            assert await ids(app, text=text) == [keyed.id]
        assert await ids(app, text=old.id, queue="money", tag="card", state="queued") == [old.id]
        assert await ids(app, text=old.id, state="dead") == []
        assert await ids(app, text=old.id, queue="default") == []
        again = await app.bulk.search(Filter(text=old.id), cursor=(await app.bulk.search(Filter(text=old.id))).cursor)
        assert again.jobs == []
        await claim.release()


async def test_a_search_is_by_time_too(app, tasks):
    async with app:
        await tasks["resize"].enqueue("a")
        now = datetime.now(UTC)
        assert len(await ids(app, since=now - timedelta(minutes=1))) == 1
        assert await ids(app, since=now + timedelta(minutes=1)) == []
        assert await ids(app, until=now - timedelta(minutes=1)) == []
        assert len(await ids(app, until=now + timedelta(minutes=1))) == 1
        with pytest.raises(InvalidJob, match="aware"):
            await ids(app, since=datetime(2026, 1, 1))  # noqa: DTZ001


async def test_pages_of_a_search_miss_nothing_and_repeat_nothing(app, tasks):
    async with app:
        calls = [app.call(tasks["resize"], f"{'odd' if n % 2 else 'even'}-{n}") for n in range(700)]
        made = [handle.id for handle in await app.enqueue_many(calls)]
        found, cursor, looked = [], None, 0
        while True:
            page = await app.bulk.search(Filter(text="odd-"), limit=37, cursor=cursor)
            assert len(page.jobs) <= 37
            found += [job.id for job in page.jobs]
            looked += page.looked
            if (cursor := page.cursor) is None:
                break
        assert found == made[::-1][::2]
        assert looked == 700
        plain = await app.bulk.search(Filter(), limit=50)
        assert [job.id for job in plain.jobs] == made[::-1][:50]
        with pytest.raises(InvalidJob, match="cursor"):
            await app.bulk.search(Filter(), cursor="no such")


async def test_a_search_ends_with_its_window_and_goes_on_behind_it(app, tasks):
    async with app:
        await tasks["resize"].enqueue("needle")
        for _ in range(0, WINDOW, 1000):
            await app.enqueue_many([app.call(tasks["resize"], "hay")] * 1000)
        first = await app.bulk.search(Filter(text="needle"))
        assert (first.jobs, first.looked) == ([], WINDOW)
        assert first.cursor is not None
        second = await app.bulk.search(Filter(text="needle"), cursor=first.cursor)
        assert (len(second.jobs), second.looked, second.cursor) == (1, 1, None)


async def test_arguments_are_found_by_name_and_value(app):
    @app.task
    def bill(customer_id: int, order: dict, note: str = "") -> None: ...

    async with app:
        first = await bill.enqueue(42, {"id": 7, "paid": True}, note="Ann: late")
        second = await bill.enqueue(421, {"id": 42, "paid": None})

        async def ids(text: str) -> list[str]:
            return [job.id for job in (await app.bulk.search(Filter(text=text))).jobs]

        assert await ids("args.customer_id:42") == [first.id]
        assert await ids("args.order.id:42") == [second.id]
        assert await ids("args.order.paid:true") == [first.id]
        assert await ids(" args.note: ann: LATE ") == [first.id]
        assert await ids("args.order:42") == []
        assert await ids("args.missing:42") == []
        assert await ids("42") == [second.id, first.id]


async def test_a_count_is_of_what_a_filter_means(app, tasks):
    async with app:
        await app.enqueue_many([app.call(tasks["resize"], f"{n}") for n in range(30)])
        await tasks["charge"].enqueue(1)
        assert (await app.bulk.count(Filter())).count == 31
        by_state = await app.bulk.count(Filter(state=["queued"], queue="default"))
        assert (by_state.count, by_state.exact, by_state.looked) == (30, True, 0)
        by_text = await app.bulk.count(Filter(text="resize"))
        assert (by_text.count, by_text.exact, by_text.looked) == (30, True, 31)
        assert (await app.bulk.count(Filter(tag="card"))).count == 1
        assert (await app.bulk.count(Filter(until=by_text.until))).count == 31


async def test_what_matches_is_cancelled_retried_and_deleted(app, tasks):
    async with app:
        await app.enqueue_many([app.call(tasks["resize"], f"{n}") for n in range(25)])
        other = await tasks["charge"].enqueue(1)
        counted = await app.bulk.count(Filter(task="resize"))
        late = await tasks["resize"].enqueue("late")
        mine = Filter(task="resize", until=counted.until)
        done = await app.bulk.change("cancel", mine)
        assert (done.changed, done.skipped, done.cursor) == (25, 0, None)
        assert (await app.job(late.id)).state == (await app.job(other.id)).state == State.QUEUED
        again = await app.bulk.change("cancel", mine)
        assert (again.changed, again.skipped) == (0, 25)
        assert (await app.bulk.change("retry", Filter(state="cancelled"))).changed == 25
        await work_off(app)
        assert (await app.bulk.change("delete", Filter(state=["succeeded", "dead"]))).changed == 27
        assert (await app.jobs()).jobs == []


async def test_some_are_changed_by_their_ids(app, tasks):
    async with app:
        made = [(await tasks["resize"].enqueue(f"{n}")).id for n in range(3)]
        done = await app.bulk.change("delete", ids=[*made[:2], made[0], "no such job"])
        assert (done.changed, done.skipped) == (2, 1)
        assert await ids(app) == [made[2]]


async def test_a_change_of_many_goes_in_steps(app, tasks):
    async with app:
        for _ in range(3):
            await app.enqueue_many([app.call(tasks["resize"], "x")] * 900)
        changed, steps, cursor = 0, 0, None
        while True:
            step = await app.bulk.change("cancel", Filter(queue="default"), cursor=cursor)
            changed, steps = changed + step.changed, steps + 1
            if (cursor := step.cursor) is None:
                break
        assert (changed, steps) == (2700, 3)


@pytest.mark.parametrize(
    ("action", "which", "words"),
    [
        ("explode", {"wanted": Filter()}, "cancel, retry, delete"),
        ("retry", {}, "give either a filter or ids"),
        ("retry", {"wanted": Filter(), "ids": ["a"]}, "give either a filter or ids"),
        ("retry", {"ids": ["a"], "all": True, "wanted": Filter()}, "give either a filter or ids"),
        ("retry", {"wanted": Filter(queue="money"), "all": True}, "not both"),
        ("retry", {"ids": ["a"] * 1001}, "at most 1000"),
        ("retry", {"wanted": Filter(text="x" * 201)}, "200 characters"),
        ("retry", {"wanted": Filter(state="no such state")}, "unknown state"),
    ],
)
async def test_a_change_of_many_that_makes_no_sense_is_refused(app, action, which, words):
    async with app:
        with pytest.raises(InvalidJob, match=words):
            await app.bulk.change(action, **which)


@pytest.mark.parametrize(
    "names_nothing",
    [Filter(), Filter(state=[]), Filter(text=""), Filter(until=datetime(2100, 1, 1, tzinfo=UTC))],
)
async def test_a_filter_that_names_nothing_changes_jobs_only_where_all_are_meant(app, tasks, names_nothing):
    async with app:
        await app.enqueue_many([app.call(tasks["resize"], f"{n}") for n in range(3)])
        for action in ("delete", "cancel", "retry"):
            with pytest.raises(InvalidJob, match=f"every job matches; to {action} every job, set all= to true"):
                await app.bulk.change(action, names_nothing)
        assert len(await ids(app)) == 3
        assert (await app.bulk.change("delete", names_nothing, all=True)).changed == 3


async def test_a_dry_run_says_what_matches_and_changes_nothing(app, tasks):
    async with app:
        made = [handle.id for handle in await app.enqueue_many([app.call(tasks["resize"], "x")] * 1500)]
        first = await app.bulk.change("delete", Filter(task="resize"), dry_run=True)
        assert (first.matched, first.changed, first.skipped) == (1000, 0, 0)
        rest = await app.bulk.change("delete", Filter(task="resize"), cursor=first.cursor, dry_run=True)
        assert (rest.matched, rest.cursor) == (500, None)
        assert (await app.bulk.change("delete", ids=[made[0], "no such job"], dry_run=True)).matched == 1
        assert await app.bulk.purge(state="queued", dry_run=True) == 1500
        assert (await app.bulk.count(Filter())).count == 1500
        done = await app.bulk.change("delete", ids=[made[0], "no such job"])
        assert (done.matched, done.changed, done.skipped) == (1, 1, 1)


async def test_a_dry_run_counts_the_dead(app, tasks):
    async with app:
        await tasks["charge"].enqueue(1)
        await work_off(app)
        assert await app.bulk.retry_dead(dry_run=True) == await app.bulk.purge(dry_run=True) == 1
        assert (await app.stats()).counts["dead"] == 1


async def test_running_jobs_are_asked_to_stop_and_not_deleted(app, tasks):
    async with app:
        await tasks["resize"].enqueue("x")
        [claim] = await app.claim()
        assert (await app.bulk.change("delete", all=True)).skipped == 1
        assert (await app.bulk.change("retry", all=True)).skipped == 1
        assert (await app.bulk.change("cancel", Filter(), all=True)).changed == 1
        assert (await app.job(claim.job.id)).cancel_requested
        await claim.release()


async def test_errors_that_differ_by_numbers_are_one_group(app, tasks):
    async with app:
        await app.enqueue_many([app.call(tasks["charge"], 7000 + n) for n in range(5)])
        await app.enqueue_many([app.call(tasks["flaky"], n) for n in range(2)])
        await tasks["resize"].enqueue("fine")
        await work_off(app)
        found = await app.errors.groups()
        assert [(one.task, one.count) for one in found.groups] == [("charge", 5), ("flaky", 2)]
        charge, flaky = found.groups
        assert charge.pattern == "ValueError: order … has no '…' address"
        assert charge.states == {"dead": 5}
        assert charge.queues == ("money",)
        assert charge.first_seen <= charge.last_seen
        assert "order 700" in charge.example
        assert found.complete
        assert flaky.states == {"failed": 2}
        assert [one.task for one in (await app.errors.groups(dead=True)).groups] == ["charge"]
        assert len(await ids(app, error=charge.fingerprint)) == 5
        assert (await app.bulk.change("retry", Filter(error=charge.fingerprint, state="dead"))).changed == 5


async def test_counts_and_groups_of_dead_jobs_continue_until_all_are_read(app, tasks, monkeypatch):
    monkeypatch.setattr(bulk, "COUNTED", 250)
    monkeypatch.setattr(errors, "FAILED_READ", 250)
    async with app:
        await app.enqueue_many([app.call(tasks["charge"], n) for n in range(600)])
        await work_off(app)
        wanted = Filter(task="charge", state="dead")
        first = await app.bulk.count(wanted)
        assert (first.count, first.exact) == (250, False)
        second = await app.bulk.count(wanted, cursor=first.cursor)
        third = await app.bulk.count(wanted, cursor=second.cursor)
        assert (first.count + second.count + third.count, third.exact, third.cursor) == (600, True, None)
        cursor, number = None, 0
        while True:
            found = await app.errors.groups(dead=True, cursor=cursor)
            number, cursor = number + found.groups[0].count, found.cursor
            if cursor is None:
                break
        assert (number, found.complete) == (600, True)
        with pytest.raises(InvalidJob, match="dead=True"):
            await app.errors.groups(cursor="x")


async def test_a_job_that_went_on_still_counts_for_its_last_error(app):
    @app.task(retry=Backoff(base=0.01, jitter=0))
    def second_time(number: int) -> None:
        if not done:
            done.append(1)
            raise OSError("disk 3 full")

    done: list[int] = []
    async with app:
        handle = await second_time.enqueue(1)
        while (await app.job(handle.id)).state != State.SUCCEEDED:
            await Worker(app, until_idle=True).run()
        [group] = (await app.errors.groups()).groups
        assert (group.pattern, group.states) == ("OSError: disk … full", {"succeeded": 1})


@pytest.mark.parametrize(
    ("line", "pattern"),
    [
        ("KeyError: 'a-key'", "KeyError: '…'"),
        ('got "x" not "y"', "got '…' not '…'"),
        ("at 0x7f3a91 in 12.5 s", "at … in … s"),
        ("row 1234567890abcdef is gone", "row … is gone"),
        ("id 6f9619ff-8b86-d011-b42d-00cf4fc964ff", "id …"),
        ("deadbeef is a word", "deadbeef is a word"),
        ("can't open 'a.txt'", "can't open '…'"),
        ("customer 'O'Brien' isn't known", "customer '…' isn't known"),
        ("""no customer "O'Brien" today""", "no customer '…' today"),
        ("key b'ab' is gone", "key b'…' is gone"),
        ("10.0.0.1:5432 refused", "… refused"),
    ],
)
def test_what_differs_between_two_errors_is_masked(line, pattern):
    assert masked(line) == pattern


async def test_rates_are_in_steps(app, tasks):
    async with app:
        await app.enqueue_many([app.call(tasks["resize"], f"{n}") for n in range(4)])
        await tasks["charge"].enqueue(1)
        await work_off(app)
        together = await app.timeseries.rates(3600, 3600)
        assert sum(one.count for one in together if one.outcome == "succeeded") == 4
        assert {one.queue for one in together} == {None}
        assert {one.queue for one in await app.timeseries.rates(3600, 60, by_queue=True)} == {"default", "money"}
        with pytest.raises(InvalidJob, match="step must be a multiple of 60 seconds"):
            await app.timeseries.rates(3600, 61)


async def test_depth_is_noted_once_a_minute(app):
    async with app:
        await app.enqueue_many([("noop",)] * 3)
        assert await app.timeseries.record_depth()
        assert not await app.timeseries.record_depth()
        [depth] = await app.timeseries.depth_by_minute(3600)
        assert (depth.queued, depth.queues) == (3, {"default": 3})
        old = str(int(parts_of(app).runtime.clock.now() / 1_000_000 - 9 * 86400) // 3600 * 3600)
        await parts_of(app).records.put("depth", old, b"{}")
        for name in await parts_of(app).records.all("depth"):
            if name != old:
                await parts_of(app).records.put("depth", name, b"not JSON")
        assert await app.timeseries.record_depth(), "what is not ours is replaced"
        assert old not in await parts_of(app).records.all("depth")


async def test_the_recorded_depth_is_the_total_of_all_queues(app):
    async with app:
        calls = [("noop",)] * 2
        await app.enqueue_many(calls)
        for number in range(MAX_RECORDED_QUEUES + 20):
            await app.using(queue=f"q{number}").enqueue("noop")
        await app.timeseries.record_depth()
        [depth] = await app.timeseries.depth_by_minute(3600)
        assert depth.queued == MAX_RECORDED_QUEUES + 22
        assert len(depth.queues) == MAX_RECORDED_QUEUES
        assert depth.queues["default"] == 2
        assert "" not in depth.queues
