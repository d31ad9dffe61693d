"""The deploy check predicts which waiting jobs of five older code versions the new workers refuse."""

import logging
import os
from dataclasses import dataclass
from datetime import date, datetime
from enum import Enum
from typing import Annotated, Any, Literal

import msgspec
import pytest

from holdfast import Holdfast, Worker
from holdfast.app import parts_of
from holdfast.core.job import State
from holdfast.worker.deploy_check import DeployCheck
from holdfast.worker.waiting_calls import waiting_calls

EVERY_DAY, WHOLE = 2_000, int(os.environ.get("HOLDFAST_JOBS", "10000"))
"""The whole takes minutes with HOLDFAST_JOBS=100000."""


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class OldColour(Enum):
    RED = "red"
    GREEN = "green"


@dataclass
class Address:
    street: str
    country: str


@dataclass
class OldAddress:
    street: str


class ReprCodec:
    """A codec of the user's own."""

    def dumps(self, value: Any) -> bytes:
        return repr(value).encode()

    def loads(self, data: bytes) -> Any:
        return eval(data)


def versions(url) -> list[tuple[Holdfast, list[Any]]]:
    """Five older versions of an application, each with functions from a number to a call of a task."""
    first, second, third, fourth, fifth = apps = [Holdfast(url) for _ in range(5)]

    @first.task(name="send")
    async def send_1(order: int, to: str) -> None: ...

    @first.task(name="resize")
    async def resize_1(path: str, width: int) -> None: ...

    @first.task(name="removed")
    async def removed_1(number: int) -> None: ...

    @second.task(name="send")
    async def send_2(order: int, to: str, copies: int = 1) -> None: ...

    @second.task(name="paint")
    async def paint_2(colour: OldColour) -> None: ...

    @second.task(name="pack", codec=ReprCodec())
    async def pack_2(*items: int, fragile: bool) -> None: ...

    @third.task(name="send")
    async def send_3(order: str, to: str) -> None: ...

    @third.task(name="ship")
    async def ship_3(to: OldAddress) -> None: ...

    @third.task(name="merge")
    async def merge_3(**parts: int) -> None: ...

    @fourth.task(name="report")
    async def report_4(day: date) -> None: ...

    @fourth.task(name="count")
    async def count_4(number: int) -> None: ...

    @fourth.task(name="batch", batch=10)
    async def batch_4(items: list[int | str]) -> None: ...

    @fifth.task(name="whole", payload=True)
    async def whole_5(payload: dict[str, Any]) -> None: ...

    @fifth.task(name="pick")
    async def pick_5(how: str) -> None: ...

    calls = [
        [lambda n: send_1.call(n, "ann"), lambda n: resize_1.call("a.png", n), removed_1.call],
        [
            lambda n: send_2.call(n, "ann", n) if n % 2 else send_2.call(n, "ann"),
            lambda n: paint_2.call(list(OldColour)[n % 2]),
            lambda n: pack_2.call(*range(n % 3), fragile=True),
        ],
        [
            lambda n: send_3.call(str(n), "ann"),
            lambda n: ship_3.call(OldAddress("Main Street")),
            lambda n: merge_3.call(**{f"part{n % 3}": n}),
        ],
        [
            lambda n: report_4.call(date(2026, 1, 1 + n % 28)),
            lambda n: count_4.call(n - 1000),
            lambda n: batch_4.call(n if n % 2 else "text"),
        ],
        [
            lambda n: whole_5.call({"number": n, "name": n if n % 5 == 0 else "x"}),
            lambda n: pick_5.call(["fast", "slow", "never"][n % 3]),
        ],
    ]
    return list(zip(apps, calls, strict=True))


class Whole(msgspec.Struct):
    number: int
    name: str


def new_version(url) -> Holdfast:
    app = Holdfast(url)

    @app.task
    async def send(order: int, to: str, *, copies: int = 1) -> None: ...

    @app.task
    async def resize(path: str, width: Annotated[int, msgspec.Meta(ge=100)], height: int = 1) -> None: ...

    @app.task
    async def paint(colour: Colour) -> None: ...

    @app.task(codec=ReprCodec())
    async def pack(first: int, *, fragile: bool) -> None: ...

    @app.task
    async def ship(to: Address) -> None: ...

    @app.task
    async def merge(part0: int = 0, part1: int = 0) -> None: ...

    @app.task
    async def report(day: datetime) -> None: ...

    @app.task
    async def count(number: Annotated[int, msgspec.Meta(ge=0)]) -> None: ...

    @app.task(batch=10)
    async def batch(items: list[int]) -> None: ...

    @app.task(payload=True)
    async def whole(payload: Whole) -> None: ...

    @app.task
    async def pick(how: Literal["fast", "slow"], when: str = "now") -> None: ...

    return app


async def predicted(app) -> tuple[set[str], DeployCheck]:
    """The jobs of the app's open store that its tasks would refuse."""
    store, checking = parts_of(app).session.store, DeployCheck(parts_of(app).registry)
    refused, cursor = set[str](), None
    while True:
        page = await waiting_calls(store, None, cursor)
        for call in page.calls:
            checking.add(call)
            if checking.refusal(call) is not None:
                refused.add(call.id)
        if (cursor := page.cursor) is None:
            return refused, checking


async def not_run(app, ids) -> set[str]:
    """Those of the jobs that did not succeed."""
    store, found = parts_of(app).session.store, set[str]()
    for start in range(0, len(ids), 1000):
        records = await store.get(ids[start : start + 1000])
        found |= {record.id for record in records if record.state != State.SUCCEEDED}
    return found


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("jobs", [EVERY_DAY, pytest.param(WHOLE, marks=pytest.mark.extended)])
async def test_it_predicts_exactly_what_workers_refuse(jobs, tmp_path):
    logging.getLogger("holdfast").setLevel(logging.CRITICAL)  # a line for each refused job
    url, ids = f"sqlite:///{tmp_path}/jobs.db", list[str]()
    for old, makers in versions(url):
        handles = await old.enqueue_many(
            old.call(call.task.using(max_attempts=1, delay=0.001 if n % 7 == 0 else 0), *call.args, **call.kwargs)
            for n in range(jobs // 5)
            for call in [makers[n % len(makers)](n)]
        )
        ids += [handle.id for handle in handles]
        await old.close()
    async with new_version(url) as new:
        refused, checking = await predicted(new)
        await Worker(new, concurrency=500, until_idle=True).run()
        assert refused == await not_run(new, ids)
    report = checking.report()
    assert (report.checked, report.refused) == (len(ids), len(refused))
    assert 0.3 < len(refused) / len(ids) < 0.7
    assert {group.task for group in report.groups} == {
        "send", "resize", "removed", "paint", "pack", "ship", "merge", "report", "count", "batch", "whole", "pick"
    }  # fmt: skip
