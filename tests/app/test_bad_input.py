"""Whatever is wrong with a call is said at once, in words that help, and nothing is stored."""

import asyncio
import functools

import pytest

from holdfast import ConfigError, Holdfast, HoldfastError, InvalidJob, PayloadTooLarge, Worker
from holdfast.app import parts_of
from support.ids import words


@pytest.fixture
def app_url():
    """What is refused at the door never reaches a store."""
    return "memory://"


@pytest.fixture
def add(app):
    @app.task
    def add(a: int, b: int = 0) -> int:
        return a + b

    return add


async def nothing_stored(app):
    return sum((await app.stats()).counts.values()) == 0


# -- options

WRONG_OPTIONS = {
    "queue": ["", " ", " mail", "mail ", "a\nb", "a\0b", "\ud800", "x" * 129, 5, b"mail", ["mail"]],
    "priority": [32768, -32769, 1.5, "5", True, [1]],
    "max_attempts": [-1, 1_000_001, 1.5, "5", True],
    "timeout": [0, -1, "soon", float("nan"), float("inf"), [1], True],
    "delay": ["soon", float("nan"), float("inf"), [1], 1e12, True],
    "at": ["2030-01-01", -5, 2e12, float("nan")],
    "key": ["", "x" * 513, "a\0b", "a\nb", "\ud800", 5, b"k"],
    "id": ["", "x" * 513, "a\0b", "a\nb", "\ud800", 5, b"k"],
    "tags": ["urgent", 5, [""], [5], ["a\0b"], [None], ["x" * 129], {"a": 1}.items()],
    "meta": [[1], "text", {1: 2}, {"a": object()}, {"a": float("nan")}, {"a": "\ud800"}, {"a": "b\0"}, {"\0": 1}],
    "retry": ["often", 5, lambda error, attempt: 1.0],
}


@pytest.mark.parametrize(
    ("option", "value"), [(option, value) for option, values in WRONG_OPTIONS.items() for value in values], ids=words
)
async def test_a_wrong_option_is_refused_by_its_name(app, add, option, value):
    for call in (lambda: add.using(**{option: value}).enqueue(1), lambda: app.submit("add", b"{}", **{option: value})):
        with pytest.raises(InvalidJob) as refused:
            await call()
        assert option.rstrip("s") in str(refused.value)
        assert len(str(refused.value)) < 1000
    assert await nothing_stored(app)


async def test_an_unknown_option_is_a_mistake_in_the_program(app, add):
    with pytest.raises(TypeError, match="prio"):
        add.using(prio=5)
    with pytest.raises((TypeError, HoldfastError), match="prio"):
        await app.submit("add", b"{}", prio=5)


async def test_no_more_tags_than_anybody_could_want(app, add):
    with pytest.raises(InvalidJob, match="tags"):
        add.using(tags=[f"tag {n}" for n in range(10_000)])


async def test_meta_is_no_way_around_the_payload_limit(make_app):
    app = make_app(max_payload=1000)
    with pytest.raises(PayloadTooLarge, match="meta"):
        await app.submit("work", b"", meta={"a": "x" * 2000})
    assert await nothing_stored(app)


# -- names


@pytest.mark.parametrize("name", ["", " ", "a\nb", "a\0b", "x" * 129, "\ud800", "\x1b[31m"])
async def test_a_wrong_task_name_is_refused(app, name):
    for call in (app.enqueue, lambda name: app.submit(name, b"")):
        with pytest.raises(InvalidJob, match="a task name must be 1 to 128 printable characters"):
            await call(name)
    assert await nothing_stored(app)


@pytest.mark.parametrize("name", [5, None, b"add", ["add"]])
async def test_a_task_name_that_is_no_text_is_refused(app, name):
    with pytest.raises(InvalidJob, match="a task name must be 1 to 128"):
        await app.submit(name, b"")


@pytest.mark.parametrize("name", ["", "x" * 129, "a\nb", 5])
def test_a_task_cannot_be_registered_under_a_wrong_name(app, name):
    with pytest.raises(HoldfastError):
        app.task(name=name)(lambda: 1)


@pytest.mark.parametrize("name", ["", "x" * 129, "a\nb", 5, None, ["a"], "\ud800"])
async def test_a_wrong_queue_cannot_be_paused_resumed_or_claimed(app, name):
    for call in (lambda: app.pause(name), lambda: app.resume(name), lambda: app.claim([name])):
        with pytest.raises(InvalidJob, match=r"a queue name must be 1 to 128|give exactly one of a queue and task="):
            await call()


# -- payloads


@pytest.mark.parametrize("payload", ["text", None, 5, ["a"], {"a": 1}])
async def test_submit_takes_nothing_but_bytes(app, payload):
    with pytest.raises(
        InvalidJob, match=r"task 'work': the payload given to submit must be bytes, not \w+: encode it first"
    ):
        await app.submit("work", payload)
    assert await nothing_stored(app)


def nested(depth):
    return functools.reduce(lambda inner, _: [inner], range(depth), [])


@pytest.mark.parametrize(
    "value",
    ["\ud800", "a\0b", nested(300), {1, 2}, object(), b"bytes".__class__],
    ids=["lone surrogate", "NUL", "nested beyond reason", "set", "object", "class"],
)
async def test_a_value_that_cannot_travel_is_refused_with_its_parameter(app, value):
    @app.task
    def take(value): ...

    with pytest.raises(InvalidJob, match="'value'"):
        await take.enqueue(value)
    with pytest.raises(InvalidJob):
        await app.enqueue("somewhere", value)
    assert await nothing_stored(app)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [1.0, float("-inf")]])
async def test_numbers_that_json_does_not_have_are_refused(app, value):
    @app.task
    def take(value: object): ...

    with pytest.raises(InvalidJob, match="NaN or infinity"):
        await take.enqueue(value)
    assert await nothing_stored(app)


async def test_a_value_that_contains_itself_is_refused(app):
    @app.task
    def take(value): ...

    loop = []
    loop.append(loop)
    with pytest.raises(InvalidJob, match="'value'"):
        await take.enqueue(loop)


async def test_a_payload_over_the_limit_is_refused_with_its_size(make_app):
    app = make_app(max_payload="1k")

    @app.task
    def take(text: str): ...

    with pytest.raises(PayloadTooLarge, match=r"a payload of 2011 bytes is over max_payload \(1024\)") as refused:
        await take.enqueue("x" * 2000)
    assert isinstance(refused.value, InvalidJob)
    with pytest.raises(PayloadTooLarge):
        await app.submit("work", bytes(1025))
    assert await nothing_stored(app)
    await app.submit("work", bytes(1024))


async def test_the_usual_limit_is_a_mebibyte(app):
    await app.submit("work", bytes(1024**2))
    with pytest.raises(PayloadTooLarge):
        await app.submit("work", bytes(1024**2 + 1))


async def test_one_payload_over_the_limit_among_many_stores_none(make_app):
    app = make_app(max_payload=100)

    @app.task
    def take(text: str): ...

    with pytest.raises(PayloadTooLarge):
        await app.enqueue_many([(take, "a"), (take, "x" * 200)])
    assert await nothing_stored(app)


# -- claims


@pytest.mark.parametrize("limit", [0, -1, 1001, "5", 1.5, None, True])
async def test_a_claim_of_a_wrong_number_is_refused(app, limit):
    with pytest.raises(InvalidJob, match="limit must be a whole number from 1 to 1000"):
        await app.claim(limit=limit)


@pytest.mark.parametrize("lease", [0, -1, 8 * 86400, "5", None, float("nan"), True])
async def test_a_claim_with_a_wrong_lease_is_refused(app, lease):
    with pytest.raises(InvalidJob, match="lease must be a number of seconds above 0 and at most 604800"):
        await app.claim(lease=lease)


@pytest.mark.parametrize("queues", [None, 5, [], [None]])
async def test_a_claim_of_no_queue_is_refused(app, queues):
    with pytest.raises(InvalidJob, match="queue"):
        await app.claim(queues)


@pytest.mark.parametrize("tasks", [5, [5], "resize"])
async def test_a_claim_of_wrong_tasks_is_refused_or_understood(app, tasks):
    await app.submit("resize", b"")
    if tasks == "resize":
        assert len(await app.claim(tasks=tasks)) == 1, "one name is as good as a list of one"
    else:
        with pytest.raises(InvalidJob, match="task"):
            await app.claim(tasks=tasks)


# -- operating


@pytest.mark.parametrize("error", [5, None, b"gone"])
async def test_a_monitors_word_is_text(app, error):
    await app.submit("a", b"", id="job")
    await app.claim()
    with pytest.raises(InvalidJob, match="error"):
        await app.handle("job").mark_failed(error)


@pytest.mark.parametrize("timeout", ["soon", float("nan"), [1]])
async def test_a_timeout_that_is_no_time_is_refused(app, timeout):
    handle = await app.enqueue("noop")
    with pytest.raises(InvalidJob, match="timeout"):
        await handle.result(timeout=timeout)


@pytest.mark.parametrize("calls", [[5], [()], [("noop",), None], "noop"])
async def test_many_of_what_are_no_calls_are_refused(app, calls):
    with pytest.raises(InvalidJob):
        await app.enqueue_many(calls)
    assert await nothing_stored(app)


@pytest.mark.parametrize(
    ("name", "value"),
    [("no_such", 1), ("concurrency", 0), ("secret", "x"), ("", 1), (5, 1), (None, 1), ("max_retries", "x")],
)
async def test_a_wrong_stored_setting_is_refused(app, name, value):
    with pytest.raises(ConfigError):
        await app.config.set(name, value)
    assert await app.config.list() == {}


# -- tasks


@pytest.mark.parametrize(
    "options",
    [
        {"queue": ""},
        {"priority": 10**6},
        {"max_attempts": -1},
        {"timeout": 0},
        {"retry": "often"},
        {"retry": 5},
        {"run_in": "cloud"},
        {"tags": "urgent"},
        {"retention": "a while"},
        {"retention": -1},
        {"codec": object()},
        {"name": ""},
    ],
    ids=words,
)
def test_a_task_with_a_wrong_option_cannot_be_defined(app, options):
    def work() -> None: ...

    with pytest.raises(HoldfastError):
        app.task(**options)(work)
    assert "work" not in parts_of(app).registry.tasks


def test_an_async_task_does_not_run_in_a_thread(app):
    async def work() -> None: ...

    with pytest.raises(ConfigError, match="is async and runs on the loop"):
        app.task(work, run_in="thread")


@pytest.mark.parametrize("thing", [5, "add", [1]], ids=words)
def test_what_is_no_function_is_no_task(app, thing):
    with pytest.raises(ConfigError):
        app.task(thing, name="thing")


# -- workers


@pytest.mark.parametrize(
    "options",
    [
        {"concurrency": 0},
        {"concurrency": -1},
        {"concurrency": "many"},
        {"concurrency": 1.5},
        {"lease": 0},
        {"lease": -1},
        {"lease": "long"},
        {"poll": 0},
        {"poll": -1},
        {"grace": -1},
        {"grace": "a while"},
        {"queues": []},
        {"queues": [""]},
        {"queues": [5]},
        {"queues": 5},
    ],
    ids=words,
)
def test_a_worker_with_a_wrong_option_cannot_be_made(options):
    with pytest.raises(HoldfastError):
        Worker(Holdfast("memory://"), **options)


async def test_one_queue_may_be_named_without_a_list(make_app):
    app = make_app()
    handle = await app.submit("noop", b"{}", queue="mail", json=True)
    await asyncio.wait_for(Worker(app, queues="mail", until_idle=True).run(), 90)
    assert await handle.result(timeout=30) is None
