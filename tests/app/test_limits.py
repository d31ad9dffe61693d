"""What a limit makes of a call: the limit key that its job stands in, however it is enqueued."""

import asyncio
import uuid
from dataclasses import dataclass
from datetime import timedelta

import pytest

from holdfast import ConfigError, InvalidJob, limit
from holdfast.app import parts_of
from holdfast.core.job import LimitKey


@dataclass
class Customer:
    id: int
    plan: str = "free"


@dataclass
class Order:
    customer: Customer


async def limit_key(app, handle) -> LimitKey | None:
    return (await parts_of(app).handles.record(handle.id)).limit_key


# -- rates


@pytest.mark.parametrize(
    ("rate", "interval"),
    [
        ("5/s", 200_000),
        ("100/min", 600_000),
        ("1000/h", 3_600_000),
        ("24/day", 3_600_000_000),
        ("2/10s", 5_000_000),
        (" 3 / 2 min ", 40_000_000),
        ("7/s", 142_858),
        ("1000000/s", 1),
    ],
)
async def test_a_rate_is_the_time_between_two_starts(app, rate, interval):
    task = app.task(print, name="p", limit=limit(rate=rate))
    assert await limit_key(app, await task.enqueue()) == LimitKey("p", interval=interval)


@pytest.mark.parametrize("rate", ["", "5", "5/x", "0/s", "5/0s", "-5/s", "5.5/s", "1000001/s", 5, "5/s/s"])
def test_a_rate_that_is_none_is_refused(rate):
    with pytest.raises(ConfigError, match=r"rate=…\) must be text such as '100/min'"):
        limit(rate=rate)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, "sets no limit"),
        ({"weight": 2}, "sets no limit"),
        ({"concurrency": 0}, "concurrency=…\\) must be a whole number from 1"),
        ({"concurrency": True}, "concurrency=…\\) must be a whole number from 1"),
        ({"concurrency": 1.5}, "concurrency=…\\) must be a whole number from 1"),
        ({"concurrency": 1, "burst": 2}, "requires rate="),
        ({"rate": "1/s", "burst": 0.5}, "burst=…\\) must be a whole number"),
        ({"rate": "1/s", "burst": 0}, "burst=…\\) must be a whole number"),
        ({"rate": "1/day", "burst": 400}, "more than one year"),
        ({"key": "c", "weight": 0}, "weight=…\\) must be a whole number from 1 to 100,"),
        ({"key": "c", "weight": 1001}, "weight=…\\) must be a whole number from 1 to 100,"),
        ({"concurrency": 1, "weight": len}, "requires key="),
        ({"key": 5}, "a parameter, a dotted path or a function"),
        ({"key": "a..b"}, "a parameter, a dotted path or a function"),
        ({"key": lambda *args: ""}, "by name"),
        ({"key": int}, "its parameters cannot be inspected"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(given, reason):
    with pytest.raises(ConfigError, match=reason):
        limit(**given)


def test_a_name_of_a_limit_key_is_checked():
    with pytest.raises(InvalidJob, match="a limit name must be"):
        limit(concurrency=1, name="")


def test_only_a_limit_is_taken_for_one(app, make_app):
    with pytest.raises(InvalidJob, match=r"made by holdfast\.limit"):
        app.task(print, name="p", limit=5)
    with pytest.raises(InvalidJob, match=r"queue_limits=: the limit of queue 'mail' must be made by holdfast\.limit"):
        make_app(queue_limits={"mail": 5})
    with pytest.raises(ConfigError, match="queue_limits= must be a dict of limits by queue"):
        make_app(queue_limits=[("mail", limit(concurrency=5))])


# -- keys


async def test_without_a_key_a_task_is_one_limit_key(app):
    @app.task(limit=limit(concurrency=2))
    async def send(to: str) -> None: ...

    assert (
        await limit_key(app, await send.enqueue("a"))
        == await limit_key(app, await send.enqueue("b"))
        == LimitKey("send", 2)
    )


async def test_a_parameter_is_a_key_and_its_limit_keys_are_served_round_robin(app):
    @app.task(limit=limit(key="customer_id", concurrency=2, rate="100/min", burst=10))
    async def send(customer_id: int, text: str = "") -> None: ...

    assert await limit_key(app, await send.enqueue(42)) == LimitKey("send/42", 2, 600_000, 10, 1)
    assert await limit_key(app, await send.enqueue(text="x", customer_id=7)) == LimitKey("send/7", 2, 600_000, 10, 1)


async def test_a_parameter_that_is_left_out_has_its_default(app):
    @app.task(limit=limit(key="region"))
    async def send(to: str, region: str = "eu") -> None: ...

    assert (await limit_key(app, await send.enqueue("a"))).name == "send/eu"


async def test_a_dotted_path_goes_into_an_argument(app):
    @app.task(limit=limit(key="order.customer.id"))
    async def ship(order: Order) -> None: ...

    assert (await limit_key(app, await ship.enqueue(Order(Customer(5))))).name == "ship/5"


async def test_a_function_is_given_the_arguments_that_it_names(app):
    @app.task(limit=limit(key=lambda order: order.customer.plan))
    async def ship(to: str, order: Order) -> None: ...

    @app.task(limit=limit(key=lambda **given: "+".join(given)))
    async def pack(to: str, order: Order, boxes: int = 1) -> None: ...

    assert (await limit_key(app, await ship.enqueue("a", Order(Customer(5, "paid"))))).name == "ship/paid"
    assert (await limit_key(app, await pack.enqueue("a", Order(Customer(5))))).name == "pack/boxes+to+order"


async def test_a_key_may_be_a_uuid(app):
    @app.task(limit=limit(key="id"))
    async def one(id: uuid.UUID) -> None: ...

    @app.task(limit=limit(key=lambda id: id))
    async def other(id: uuid.UUID) -> None: ...

    id = uuid.uuid4()
    assert (await limit_key(app, await one.enqueue(id))).name == f"one/{id}"
    assert (await limit_key(app, await other.enqueue(id))).name == f"other/{id}"


async def test_a_weight_may_follow_from_the_key(app):
    @app.task(limit=limit(key="plan", weight=lambda plan: 10 if plan == "paid" else 1))
    async def ship(plan: str) -> None: ...

    assert (await limit_key(app, await ship.enqueue("paid"))).weight == 10
    assert (await limit_key(app, await ship.enqueue("free"))).weight == 1


@pytest.mark.parametrize("value", [None, 1.5, [1], {"a": 1}], ids=repr)
async def test_a_key_that_is_no_name_is_refused_before_anything_is_stored(app, value):
    @app.task(limit=limit(key="key"))
    async def send(key) -> None: ...

    with pytest.raises(InvalidJob, match="task 'send': its limit's key 'key' must be text, a whole number or a UUID"):
        await send.enqueue(value)
    assert (await app.jobs()).jobs == []


async def test_what_a_users_function_raises_refuses_the_job(app):
    @app.task(limit=limit(key=lambda to: {}[to]))
    async def send(to: str) -> None: ...

    @app.task(limit=limit(key="to", weight=lambda to: 1 / 0))
    async def post(to: str) -> None: ...

    @app.task(limit=limit(key="to", weight=lambda to: 5000))
    async def ship(to: str) -> None: ...

    for task, reason in (
        (send, "the key function of its limit raised KeyError"),
        (post, "the weight function of its limit raised ZeroDivisionError"),
        (ship, "the weight of its limit for key 'a' must be a whole number from 1 to 100, not 5000"),
    ):
        with pytest.raises(InvalidJob, match=reason):
            await task.enqueue("a")


def test_a_key_that_the_task_does_not_have_is_refused_at_once(app):
    async def send(to: str) -> None: ...

    for key in ("customer", "customer.id", lambda customer: customer):
        with pytest.raises(ConfigError, match="task 'send': the key of its limit names parameter 'customer'"):
            app.task(send, limit=limit(key=key))


async def test_names_of_limit_keys_do_not_collide(app):
    @app.task(name="a", limit=limit(key="key"))
    async def one(key: str) -> None: ...

    @app.task(name="a/b", limit=limit(key="key"))
    async def two(key: str) -> None: ...

    @app.task(name="@a", limit=limit(key="key"))
    async def three(key: str) -> None: ...

    @app.task(name="#a", limit=limit(key="key"))
    async def four(key: str) -> None: ...

    @app.task(name="other", limit=limit(key="key", name="a"))
    async def five(key: str) -> None: ...

    @app.task(name="%2Fa", limit=limit(concurrency=1))
    async def six() -> None: ...

    calls = [one.using().call("b/c"), two.using().call("c"), three.using().call("b/c"), four.using().call("b/c")]
    calls += [five.using().call("b/c"), six.using().call()]
    names = [(await limit_key(app, handle)).name for handle in await app.enqueue_many(calls)]
    assert names == ["a/b/c", "a%2Fb/c", "%40a/b/c", "%23a/b/c", "@a/b/c", "%252Fa"]


async def test_names_of_limit_keys_are_bounded_and_printable(app):
    @app.task(limit=limit(key="key"))
    async def send(key: str) -> None: ...

    keys = ["x" * 1000, "x" * 1001, "a\nb", "a\tb", "a?b", "é" * 500, "…"]
    names = [(await limit_key(app, await send.enqueue(key))).name for key in keys]
    assert len(set(names)) == len(names)
    assert all(len(name) <= 160 and name.isprintable() for name in names)
    literal = await limit_key(app, await send.enqueue(names[0].removeprefix("send/")))
    assert literal.name != names[0]


async def test_tasks_may_share_a_limit_key(app):
    shared = limit(key="to", concurrency=2, name="smtp")

    @app.task(limit=shared)
    async def mail(to: str) -> None: ...

    @app.task(limit=shared)
    async def newsletter(to: str, issue: int) -> None: ...

    one, other = await mail.enqueue("a"), await newsletter.enqueue("a", 5)
    assert (await limit_key(app, one)).name == (await limit_key(app, other)).name == "@smtp/a"


# -- every way to enqueue


async def test_every_way_to_enqueue_finds_the_limit_key(app):
    @app.task(limit=limit(key="to"))
    async def send(to: str) -> None: ...

    handles = [
        await send.enqueue("a"),
        await send.using(priority=5).enqueue("a"),
        await app.enqueue("send", "a"),
        await app.enqueue(send.fn, "a"),
        *await app.enqueue_many([(send, "a"), send.using(delay=60).call("a")]),
        await app.submit("send", b'{"to": "a"}', json=True),
    ]
    await app.schedules.put("s", send.using().call("a"), every=timedelta(hours=1))
    handles.append(await app.schedules.run_now("s"))
    assert [(await limit_key(app, handle)).name for handle in handles] == ["send/a"] * 8


async def test_blocking_code_finds_the_limit_key(app):
    @app.task(limit=limit(key="to"))
    async def send(to: str) -> None: ...

    handle = await asyncio.to_thread(send.sync.enqueue, "a")
    assert (await limit_key(app, handle)).name == "send/a"


async def test_one_call_may_have_a_limit_of_its_own(app):
    @app.task(limit=limit(concurrency=2))
    async def send(to: str) -> None: ...

    own = send.using(limit=limit(concurrency=7, name="own"))
    assert await limit_key(app, await own.enqueue("a")) == LimitKey("@own", 7)
    with pytest.raises(InvalidJob, match=r"a schedule cannot have limit="):
        await app.schedules.put("s", own.call("a"), every=60)


async def test_a_codec_of_ones_own_does_not_hide_the_key(app):
    class Own:
        name = "own"

        def dumps(self, value):
            return repr(value).encode()

        def loads(self, data):
            return eval(data)

    @app.task(codec=Own(), limit=limit(key="to"))
    async def send(to: str) -> None: ...

    assert (await limit_key(app, await send.enqueue("a"))).name == "send/a"


async def test_a_payload_without_the_key_is_refused(app):
    @app.task(limit=limit(key="to"))
    async def send(to: str) -> None: ...

    with pytest.raises(InvalidJob, match="its payload has no 'to', the key of its limit"):
        await app.submit("send", b"{}", json=True)
    with pytest.raises(InvalidJob, match="a payload that is a JSON object"):
        await app.submit("send", b"\xff")


# -- queues


async def test_a_queue_may_have_a_limit(make_app):
    app = make_app(queue_limits={"mail": limit(concurrency=5), "bulk": limit(key="to", rate="1/s")})

    @app.task(queue="mail")
    async def send(to: str) -> None: ...

    assert await limit_key(app, await send.enqueue("a")) == LimitKey("#mail", 5)
    assert await limit_key(app, await send.using(queue="bulk").enqueue("a")) == LimitKey("#bulk/a", 0, 1_000_000, 1, 1)
    assert await limit_key(app, await send.using(queue="other").enqueue("a")) is None
    assert await limit_key(app, await app.submit("unknown", b"{}", json=True, queue="mail")) == LimitKey("#mail", 5)
    assert await limit_key(app, await app.submit("unknown", b'{"to": 5}', json=True, queue="bulk")) is not None


async def test_a_tasks_own_limit_comes_before_its_queues(make_app):
    app = make_app(queue_limits={"default": limit(concurrency=5)})

    @app.task(limit=limit(concurrency=2))
    async def send() -> None: ...

    assert await limit_key(app, await send.enqueue()) == LimitKey("send", 2)
