"""Enqueue: what is stored, and when it may start."""

import asyncio
import dataclasses
import uuid
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from holdfast import Backoff, InvalidJob, JobExists, State
from support.workers import work_off


@dataclasses.dataclass
class Order:
    number: int
    due: datetime
    total: Decimal


class Colour(Enum):
    RED = "red"


@pytest.fixture
def add(app):
    @app.task
    def add(a: int, b: int = 10) -> int:
        return a + b

    return add


# -- the job that a call becomes


async def test_enqueue_stores_a_job_that_anybody_can_read(app, add):
    before = datetime.now(UTC)
    handle = await add.enqueue(1, b=2)
    job = await app.job(handle.id)
    assert (job.task, job.queue, job.state, job.payload) == ("add", "default", State.QUEUED, {"a": 1, "b": 2})
    assert (job.attempt, job.max_attempts, job.priority, job.timeout) == (0, 5, 0, None)
    assert (job.worker, job.result, job.error, job.history) == (None, None, None, ())
    assert before - timedelta(seconds=1) < job.created_at <= datetime.now(UTC)
    assert job.created_at.tzinfo is UTC
    assert uuid.UUID(job.id).version == 7


async def test_a_call_runs_and_its_result_comes_back_typed(app, add):
    handle = await add.enqueue(1, b=2)
    await work_off(app)
    assert await handle.result(timeout=30) == 3


async def test_a_task_is_still_a_plain_function(add):
    assert add(1, 2) == 3


async def test_arguments_arrive_with_the_types_of_the_signature(app):
    seen = []

    @app.task
    def take(
        order: Order, colour: Colour, where: Path, id: uuid.UUID, raw: bytes, *more: int, **named: Decimal
    ) -> Order:
        seen.append((order, colour, where, id, raw, more, named))
        return order

    order = Order(1, datetime(2030, 1, 1, 12, tzinfo=UTC), Decimal("9.90"))
    id = uuid.uuid4()
    handle = await take.enqueue(order, Colour.RED, Path("a/b"), id, b"\xff\0", 1, 2, tax=Decimal("0.1"))
    await work_off(app)
    assert await handle.result(timeout=30) == order
    assert seen == [(order, Colour.RED, Path("a/b"), id, b"\xff\0", (1, 2), {"tax": Decimal("0.1")})]


async def test_an_argument_that_cannot_travel_is_refused_by_name_and_nothing_is_stored(app, add):
    with pytest.raises(InvalidJob, match="'b'"):
        await add.enqueue(1, object())
    assert (await app.jobs()).jobs == []


@pytest.mark.parametrize(
    ("args", "kwargs", "said"),
    [
        ((), {}, "missing 1 required argument: 'a'"),
        ((1, 2, 3), {}, "takes 2 positional arguments but 3 were given"),
        ((1,), {"c": 3}, "unexpected keyword argument 'c'"),
        ((1,), {"a": 3}, "multiple values for argument 'a'"),
        (("one",), {}, "'a'"),
    ],
)
async def test_a_call_that_does_not_fit_the_function_is_refused_at_once(app, add, args, kwargs, said):
    with pytest.raises(InvalidJob) as refused:
        await add.enqueue(*args, **kwargs)
    assert said in str(refused.value)
    assert (await app.jobs()).jobs == []


async def test_a_task_can_take_its_payload_whole(app):
    @app.task(payload=True)
    def take(event: dict) -> list:
        return sorted(event)

    handle = await take.enqueue({"b": 1, "a": [1, 2]})
    assert (await handle.job()).payload == {"b": 1, "a": [1, 2]}
    await work_off(app)
    assert await handle.result(timeout=30) == ["a", "b"]


async def test_a_task_can_have_a_codec_of_its_own(app):
    class Backwards:
        name = "backwards"

        def dumps(self, value):
            return repr(value)[::-1].encode()

        def loads(self, data):
            import ast

            return ast.literal_eval(data.decode()[::-1])

    @app.task(codec=Backwards())
    def add(a, b):
        return {a: b}

    handle = await add.enqueue(1, b=2)
    await work_off(app)
    assert await handle.result(timeout=30) == {1: 2}


# -- options of a task and of a call


async def test_options_of_the_call_come_before_those_of_the_task_before_those_of_the_app(make_app):
    app = make_app(max_attempts=7)

    @app.task(queue="mail", priority=5, timeout=30, tags=["a"])
    def send() -> None: ...

    plain = await app.job((await send.enqueue()).id)
    assert (plain.queue, plain.priority, plain.timeout, plain.max_attempts, plain.tags) == ("mail", 5, 30, 7, ("a",))
    using = send.using(queue="slow", priority=-5, timeout=timedelta(minutes=1), max_attempts=2, tags=["b", "c"])
    changed = await app.job((await using.enqueue()).id)
    assert (changed.queue, changed.priority, changed.timeout, changed.max_attempts, changed.tags) == (
        "slow",
        -5,
        60,
        2,
        ("b", "c"),
    )


async def test_using_leaves_the_task_as_it_was(app, add):
    add.using(queue="other", key="k")
    assert (await app.job((await add.enqueue(1)).id)).queue == "default"


async def test_meta_and_tags_are_kept_as_given(app, add):
    meta = {"customer": 42, "nested": {"a": [1, None, "ü"]}}
    job = await (await add.using(meta=meta, tags=["urgent", "größe"]).enqueue(1)).job()
    assert (job.meta, job.tags) == (meta, ("urgent", "größe"))


async def test_a_backoff_of_the_call_is_kept_with_the_job(make_app):
    app = make_app(retry_base=1000)

    @app.task
    def fail() -> None:
        raise RuntimeError("no")

    handle = await fail.using(retry=Backoff(base=0, jitter=0), max_attempts=2).enqueue()
    await work_off(app)
    assert (await handle.wait(timeout=30)).state == State.DEAD


async def test_zero_attempts_are_no_limit(app, add):
    assert (await (await add.using(max_attempts=0).enqueue(1)).job()).max_attempts == 0


# -- when it may start


async def test_a_delayed_job_is_scheduled(app, add):
    job = await (await add.using(delay=60).enqueue(1)).job()
    assert job.state == State.SCHEDULED
    assert timedelta(seconds=59) < job.run_at - job.created_at <= timedelta(seconds=60)


async def test_a_delay_may_be_a_timedelta(app, add):
    job = await (await add.using(delay=timedelta(hours=2)).enqueue(1)).job()
    assert job.run_at - job.created_at == timedelta(hours=2)


@pytest.mark.parametrize(
    "at",
    [
        datetime(2090, 7, 1, 10, 0, 0, 123456, tzinfo=UTC),
        datetime(2090, 7, 1, 12, 0, 0, 123456, tzinfo=ZoneInfo("Europe/Berlin")),
        datetime(2090, 7, 1, 15, 30, 0, 123456, tzinfo=timezone(timedelta(hours=5, minutes=30))),
        datetime(2090, 6, 30, 23, 0, 0, 123456, tzinfo=timezone(timedelta(hours=-11))),
    ],
)
async def test_a_time_of_any_zone_means_the_same_moment(app, add, at):
    job = await (await add.using(at=at).enqueue(1)).job()
    assert job.run_at == datetime(2090, 7, 1, 10, 0, 0, 123456, tzinfo=UTC)
    assert job.run_at.utcoffset() == timedelta(0)


async def test_the_repeated_hour_of_a_clock_change_is_two_different_moments(app, add):
    unique = datetime(2090, 10, 29, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    again = unique.replace(fold=1)
    first, second = await add.using(at=unique).enqueue(1), await add.using(at=again).enqueue(1)
    assert (await second.job()).run_at - (await first.job()).run_at == timedelta(hours=1)


async def test_a_naive_time_is_refused(app, add):
    with pytest.raises(InvalidJob, match=r"at= needs an aware datetime, such as datetime\.now\(UTC\)"):
        add.using(at=datetime(2090, 1, 1))  # noqa: DTZ001
    for milliseconds_or_worse in (1_900_000_000_000, -1, float("nan"), True, "1900000000"):
        with pytest.raises(InvalidJob, match=r"or seconds since 1970, not"):
            add.using(at=milliseconds_or_worse)


async def test_a_due_time_may_be_seconds_since_1970(add):
    job = await (await add.using(at=3_790_000_000.5).enqueue(1)).job()
    assert job.run_at == datetime(2090, 2, 5, 17, 46, 40, 500_000, tzinfo=UTC)


@pytest.mark.parametrize(
    "at", [datetime(1990, 1, 1, tzinfo=UTC), datetime.min.replace(tzinfo=UTC), datetime(1969, 12, 31, tzinfo=UTC)]
)
async def test_the_past_means_now(app, add, at):
    job = await (await add.using(at=at).enqueue(1)).job()
    assert job.state == State.QUEUED
    assert job.run_at == job.created_at


async def test_a_negative_delay_means_now(app, add):
    assert (await (await add.using(delay=-5).enqueue(1)).job()).state == State.QUEUED


@pytest.mark.parametrize(
    "at", [datetime.max.replace(tzinfo=UTC), datetime.max.replace(tzinfo=timezone(timedelta(hours=-12)))]
)
async def test_the_end_of_time_is_a_time_that_everybody_can_read(app, add, at):
    handle = await add.using(at=at).enqueue(1)
    assert (await handle.job()).run_at.year == 9999
    assert len((await app.jobs()).jobs) == 1


async def test_a_delay_of_millennia_is_refused_rather_than_unreadable(app, add):
    with pytest.raises(InvalidJob, match="delay must be"):
        add.using(delay=9e11)


async def test_both_a_delay_and_a_time_are_refused(add):
    with pytest.raises(InvalidJob, match="either delay= or at=, not both"):
        add.using(delay=1, at=datetime.now(UTC))


def test_a_later_option_for_the_start_replaces_an_earlier_one(app, add):
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    job = add.sync.using(at=tomorrow).using(delay=60).enqueue(1).job()
    assert job.run_at - job.created_at == timedelta(seconds=60)
    assert add.sync.using(delay=60).using(at=tomorrow).enqueue(1).job().run_at == tomorrow


# -- an id of one's own


async def test_a_job_can_have_an_id_of_ones_own(app, add):
    handle = await add.using(id="invoice/2030-001").enqueue(1)
    assert handle.id == "invoice/2030-001"
    assert (await app.job("invoice/2030-001")).payload == {"a": 1}


async def test_an_id_that_is_taken_is_refused_even_for_the_same_call(app, add):
    await add.using(id="mine").enqueue(1)
    with pytest.raises(JobExists, match="job 'mine' already exists") as refused:
        await add.using(id="mine").enqueue(1)
    assert refused.value.job_id == "mine"
    assert len((await app.jobs()).jobs) == 1


async def test_of_many_who_want_one_id_at_once_one_gets_it(app, add):
    tries = [add.using(id="mine").enqueue(n) for n in range(20)]
    answers = await asyncio.gather(*tries, return_exceptions=True)
    assert sum(1 for one in answers if isinstance(one, JobExists)) == 19
    assert len((await app.jobs()).jobs) == 1


async def test_an_id_is_taken_until_its_job_is_gone(app, add):
    await add.using(id="mine").enqueue(1)
    await work_off(app)
    with pytest.raises(JobExists):
        await add.using(id="mine").enqueue(1)
    await app.delete("mine")
    await add.using(id="mine").enqueue(2)
    assert (await app.job("mine")).payload == {"a": 2}


# -- many at once


async def test_many_calls_are_enqueued_in_one_go(app, add):
    handles = await app.enqueue_many([app.call(add, n) for n in range(25)])
    assert len({handle.id for handle in handles}) == 25
    await work_off(app)
    assert [await handle.result(timeout=30) for handle in handles] == [n + 10 for n in range(25)]


async def test_many_calls_may_be_tuples_names_functions_and_options(app, add):
    @app.task
    def hello(name: str = "you") -> str:
        return f"hello {name}"

    handles = await app.enqueue_many(
        [(add, 1, 2), ("hello", "ann"), (hello,), add.using(queue="other").call(5), app.call("add", 1, b=1)]
    )
    jobs = [await handle.job() for handle in handles]
    assert [job.task for job in jobs] == ["add", "hello", "hello", "add", "add"]
    assert [job.queue for job in jobs] == ["default", "default", "default", "other", "default"]
    await work_off(app, queues=["default", "other"])
    assert [await handle.result(timeout=30) for handle in handles] == [3, "hello ann", "hello you", 15, 2]


async def test_many_may_be_none_or_thousands(app, add):
    assert await app.enqueue_many([]) == []
    handles = await app.enqueue_many((add, n) for n in range(2_500))
    assert len(handles) == 2_500
    assert (await app.stats()).counts["queued"] == 2_500


async def test_one_wrong_call_among_many_stores_none_of_them(app, add):
    with pytest.raises(InvalidJob):
        await app.enqueue_many([(add, 1), (add, "x"), (add, 3)])
    assert (await app.stats()).counts["queued"] == 0


async def test_a_hundred_callers_at_once_each_get_their_own_job(app, add):
    handles = await asyncio.gather(*(add.enqueue(n) for n in range(100)))
    payloads = [(await handle.job()).payload["a"] for handle in handles]
    assert payloads == list(range(100))


# -- the built-in task


async def test_noop_does_nothing_durably(app):
    handle = await app.enqueue("noop")
    await work_off(app)
    assert await handle.result(timeout=30) is None
