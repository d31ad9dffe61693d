"""The deploy check: what it reads, how it groups refusals, and that it writes nothing."""

import pytest

from holdfast import Context, Flow, Holdfast, Retry, Worker
from holdfast.app import parts_of
from holdfast.core.clock import SystemClock
from holdfast.core.errors import ConfigError, StoreUnavailable
from holdfast.core.job import State
from holdfast.core.operations import Where
from holdfast.store.open import open_store
from holdfast.store.sqlite import schema
from holdfast.worker.deploy_check import OTHER, SAMPLES, TEXTS, DeployCheck, check
from holdfast.worker.waiting_calls import waiting_calls
from support.second_step import second_step


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def checked(url):
    """Checks the store with the tasks of an app."""

    async def run(app, **options):
        return await check(parts_of(app).registry, open_store(url, SystemClock()), **options)

    return run


def old_app(url):
    app = Holdfast(url)

    @app.task
    async def send(order: int) -> None: ...

    return app, send


async def test_jobs_of_every_waiting_state_are_checked(url, checked):
    app, send = old_app(url)

    @app.task(max_attempts=2)
    async def fail() -> None:
        raise Retry(after=60)

    @app.task
    async def after(ctx: Context) -> None: ...

    async with app:
        failed = await fail.enqueue()
        await app.enqueue(after)
        await Worker(app, until_idle=True).run()  # one ends, one waits for its next attempt
        assert (await failed.job()).state == State.FAILED
        await send.enqueue(1)
        await send.using(delay=60).enqueue(2)
        flow = Flow()
        first = flow.add(send, 3)
        flow.add(after).after(first)
        await app.enqueue_flow(flow)
        states = {record.state for record in (await parts_of(app).session.store.find(Where(), None, 100)).records}
        assert states == {"failed", "succeeded", "queued", "scheduled", "blocked"}
    report = await checked(Holdfast(url))
    assert (report.checked, report.refused, report.complete) == (5, 5, True)
    assert {(one.task, one.count, one.reason) for one in report.groups} == {
        ("send", 3, "unknown_task"), ("fail", 1, "unknown_task"), ("after", 1, "unknown_task"),
    }  # fmt: skip
    assert (await checked(app)).groups == []


async def test_a_job_that_takes_results_is_checked_as_far_as_these_exist(url, checked):
    app = Holdfast(url)

    @app.task
    async def count() -> int:
        return 5

    @app.task(queue="later")
    async def pause() -> int:
        return 6

    @app.task(queue="later")
    async def add(first: int, second: int, third: int = 0) -> int:
        return first + second + third

    async with app:
        flow = Flow()
        flow.add(add, flow.add(count), flow.add(pause), 7)
        await app.enqueue_flow(flow)
        await Worker(app, ["default"], until_idle=True).run()

    async def refused(fn):
        new = Holdfast(url)
        new.task(count.fn)
        new.task(pause.fn)
        new.task(fn, name="add")
        report = await checked(new)
        assert (report.checked, report.open) == (2, 1)
        return [(one.kind, one.error) for one in report.groups]

    async def same(first: int, second: int, third: int) -> None: ...
    async def open_type(first: int, second: str, third: int) -> None: ...
    async def known_type(first: str, second: int, third: int) -> None: ...
    async def other_argument(first: int, second: int, third: str) -> None: ...
    async def without_edge(first: int, third: int) -> None: ...
    async def one_more(first: int, second: int, third: int, fourth: int) -> None: ...

    assert await refused(same) == []
    assert await refused(open_type) == []  # the result may be text by then
    for fn, text in [
        (known_type, "parameter 'first' of known_type() is invalid: Expected `str`, got `int`"),
        (other_argument, "parameter 'third' of other_argument() is invalid: Expected `str`, got `int`"),
        (without_edge, "without_edge() got an unexpected keyword argument 'second'"),
        (one_more, "one_more() missing 1 required argument: 'fourth'"),
    ]:
        assert await refused(fn) == [("flow", f"InvalidJob: {text}")]


async def test_a_schedule_is_checked_unless_the_new_code_declares_it(url, checked):
    app, send = old_app(url)
    async with app:
        await app.schedules.put("nightly", send.call(1), cron="0 3 * * *")
    new = Holdfast(url)

    @new.task(name="send")
    async def send_to(order: int, to: str) -> None: ...

    report = await checked(new)
    [group] = report.groups
    assert (group.kind, group.samples, group.reason) == ("schedule", ["nightly"], "arguments")
    assert (await checked(new, declared=["nightly"])).refused == 0
    assert (await checked(new, queue="other")).checked == 0


async def test_refusals_are_grouped_with_samples(url, checked):
    app = Holdfast(url)

    @app.task
    async def pick(how: str) -> None: ...

    @app.task
    async def gone() -> None: ...

    async with app:
        await app.enqueue_many([pick.call(str(n)) for n in range(TEXTS + 10)])
        await app.enqueue_many([gone.call() for _ in range(SAMPLES + 1)])
    new = Holdfast(url)

    @new.task(name="pick")
    async def choose(how: Never) -> None: ...

    report = await checked(new)
    assert (report.refused, len(report.groups)) == (TEXTS + 10 + SAMPLES + 1, TEXTS + 2)
    other, unknown = report.groups[:2]
    assert (other.error, other.count) == (OTHER, 10)
    assert (unknown.task, unknown.count, len(unknown.samples)) == ("gone", SAMPLES + 1, SAMPLES)


class Never:
    """A type whose error contains the value."""

    def __init__(self, value) -> None:
        raise ValueError(f"no {value}")

    def __fspath__(self) -> str:
        return ""


async def test_a_limit_is_reported(url, checked):
    app, send = old_app(url)
    async with app:
        await app.enqueue_many([send.call(n) for n in range(600)])
    assert [(one.checked, one.complete) for one in [await checked(app, limit=n) for n in (300, 599, 600, None)]] == [
        (300, False), (599, False), (600, True), (600, True),
    ]  # fmt: skip


async def test_a_pickled_call_is_checked_with_the_secret(url, checked):
    pytest.importorskip("cloudpickle")
    signed = {"cloudpickle": True, "secret": "a long random text"}
    async with Holdfast(url, **signed) as app:
        await app.enqueue(lambda fn: fn, fn=1)
    assert (await checked(Holdfast(url, **signed))).refused == 0
    assert (await checked(Holdfast(url, **{**signed, "secret": "another random text"}))).refused == 1
    [group] = (await checked(Holdfast(url))).groups
    assert group.reason == "unknown_task"


async def test_a_store_is_not_created(url, tmp_path, checked):
    with pytest.raises(StoreUnavailable, match="none was created"):
        await checked(Holdfast(url))
    assert list(tmp_path.iterdir()) == []


async def test_a_store_is_not_migrated(url, checked):
    app, send = old_app(url)
    async with app:
        await send.enqueue(1)
    with second_step(schema, "CREATE TABLE holdfast_next (word TEXT);"):
        with pytest.raises(ConfigError, match="schema versions 2"):
            await checked(app)
        assert await open_store(url, SystemClock()).missing() == [2]


async def test_nothing_is_written(url, tmp_path, checked):
    app, send = old_app(url)
    async with app:
        await send.enqueue(1)
        await app.schedules.put("nightly", send.call(1), cron="0 3 * * *")
    before = (tmp_path / "jobs.db").read_bytes()
    assert (await checked(Holdfast(url, cloudpickle=True, secret="a long random text"))).refused == 2
    assert (tmp_path / "jobs.db").read_bytes() == before


async def test_schedules_and_follow_ups_do_not_count_for_the_limit(url, checked):
    app, send = old_app(url)
    async with app:
        for name in "abc":
            await app.schedules.put(name, send.call(1), cron="0 3 * * *")
        for n in range(2):
            await send.using(on_success="report", on_dead="report").enqueue(n)
    report = await checked(app, limit=1)
    assert (report.checked, report.complete) == (3 + 1 + 2, False)
    report = await checked(app, limit=2)
    assert (report.checked, report.complete) == (3 + 2 + 4, True)


async def test_follow_ups_are_checked(url, checked):
    app, send = old_app(url)

    @app.task
    async def report(id: str) -> None: ...

    async with app:
        job = await send.using(on_success="shipped", on_dead=report).enqueue(1)
    new = Holdfast(url)
    new.task(send.fn)

    @new.task(name="report")
    async def report_number(id: int) -> None: ...

    found = await checked(new)
    assert found.checked == 3
    assert {(one.kind, one.task, one.reason, *one.samples) for one in found.groups} == {
        ("follow_up", "shipped", "unknown_task", job.id), ("follow_up", "report", "arguments", job.id),
    }  # fmt: skip


async def pages_of(app):
    """All pages of the store of an app."""
    store, pages, cursor = parts_of(app).session.store, [], None
    while not pages or cursor is not None:
        pages.append(await waiting_calls(store, None, cursor))
        cursor = pages[-1].cursor
    return pages


def sent(page):
    return sum(len(call.payload) for call in page.calls)


async def test_a_page_is_bounded_with_the_results_filled_in(monkeypatch):
    monkeypatch.setattr("holdfast.worker.waiting_calls.CALLS_BYTES", 4_000)
    app = Holdfast("memory://")

    @app.task
    async def text() -> str:
        return "x" * 1_000

    @app.task(queue="later")
    async def show(one: str, more: list[str]) -> None: ...

    async with app:
        flow = Flow()
        first = flow.add(text)
        fitting = [flow.add(show, first, []) for _ in range(10)]
        large = flow.add(show, first, [first] * 4)
        handle = await app.enqueue_flow(flow)
        await Worker(app, ["default"], until_idle=True).run()
        pages = await pages_of(app)
        calls = {call.id: call for page in pages for call in page.calls}
        assert max(map(sent, pages)) <= 4_000
        assert len(pages) > 1
        assert set(calls) == {handle.handle(node).id for node in (*fitting, large)}
        assert {id for id, call in calls.items() if call.open} == {handle.handle(large).id}
        checking = DeployCheck(parts_of(app).registry)
        for call in calls.values():
            checking.add(call)
        assert checking.report().refused == 0


async def test_the_results_that_are_read_for_a_page_are_bounded(monkeypatch):
    monkeypatch.setattr("holdfast.worker.waiting_calls.CALLS_BYTES", 4_000)
    monkeypatch.setattr("holdfast.worker.waiting_calls.PARENTS", 2)
    app = Holdfast("memory://")

    @app.task
    async def text() -> str:
        return "x" * 1_000

    @app.task(queue="later")
    async def join(parts: list[str]) -> None: ...

    async with app:
        flow = Flow()
        flow.add(join, [flow.add(text) for _ in range(20)])
        await app.enqueue_flow(flow)
        await Worker(app, ["default"], until_idle=True).run()
        store = parts_of(app).session.store
        read, get = [], store.get
        monkeypatch.setattr(store, "get", lambda ids: read.extend(ids) or get(ids))
        [page] = await pages_of(app)
    assert [call.open for call in page.calls] == [True]
    assert len(read) < 10


async def test_schedules_are_paged(monkeypatch):
    monkeypatch.setattr("holdfast.worker.waiting_calls.CALLS_BYTES", 2_000)
    app, _ = old_app("memory://")

    @app.task
    async def show(text: str) -> None: ...

    async with app:
        names = [f"schedule {n}" for n in range(7)]
        for name in names:
            await app.schedules.put(name, show.call("x" * 600), cron="0 3 * * *")
        job = await show.enqueue("y" * 600)
        pages = await pages_of(app)
    assert [call.id for page in pages for call in page.calls] == [*names, job.id]
    assert max(map(sent, pages)) <= 2_000
    assert [page.store_id for page in pages[1:]] == [None] * (len(pages) - 1)
