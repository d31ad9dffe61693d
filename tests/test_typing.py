"""Type checkers see every option and every argument: mypy and pyright find the same mistakes in a user's program."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.extended
OPTIONS = """\
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import assert_type

from holdfast import Backoff, Context, Depends, Handle, Holdfast, limit
from holdfast.testing import override

app = Holdfast("memory://")


@app.task(queue="mail", max_attempts=3, retry=lambda error, attempt: 1.0, run_in="thread", expires=60)
def send(to: str, copies: int = 1) -> bool:
    return bool(to)


@app.task
async def count(ctx: Context, to: str) -> int:
    return len(to)


@app.task(batch=10, wait=0.5, limit=limit(concurrency=1))
def many(items: list[str]) -> list[int]:
    return [len(item) for item in items]


class Mailer:
    def __init__(self, host: str = "localhost") -> None: ...


def get_host() -> str:
    return ""


async def get_number() -> int:
    return 1


def open_file(ctx: Context, host: str = Depends(get_host)) -> Iterator[bytes]:
    yield b""


async def open_pool() -> AsyncIterator[float]:
    yield 1.0


@app.task
def order(
    id: int, *,
    mailer: Mailer = Depends(Mailer),
    host: str = Depends(get_host),
    number: int = Depends(get_number, scope="worker"),
    file: bytes = Depends(open_file),
    pool: float = Depends(open_pool, scope="worker"),
) -> str:
    return host


@app.task(queue="mail")
async def confirm(ctx: Context, id: int, *, mailer: Mailer = Depends(Mailer)) -> None: ...


@app.task(batch=10)
def orders(ids: list[int], *, mailer: Mailer = Depends(Mailer)) -> None: ...


def mistaken(
    *,
    mailer: Mailer = Depends(get_host),  # wrong
    number: str = Depends(get_number),  # wrong
    file: str = Depends(open_file),  # wrong
    pool: int = Depends(open_pool),  # wrong
    host: str = Depends(get_host, scope="request"),  # wrong
) -> None: ...


async def inject() -> None:
    assert_type(await order.enqueue(1), Handle[str])
    assert_type(order.sync.enqueue(1).result(), str)
    await confirm.enqueue(1)
    await confirm.using(priority=1).enqueue(id=1)
    await orders.enqueue(1)
    with override(app, get_host, lambda: "test"):
        order(1, mailer=Mailer())
    await order.enqueue("1")  # wrong


async def main(now: datetime) -> None:
    assert_type(await send.using(priority=1, delay=timedelta(1), tags=["a"], meta={"a": 1}).enqueue("a"), Handle[bool])
    assert_type(await count.using(at=now, unique="until_end", expires=now).enqueue("a"), Handle[int])
    assert_type(await many.using(key="k", debounce=1, debounce_max=3, retry=Backoff()).enqueue("a"), Handle[int])
    assert_type(send.sync.using(timeout=None).enqueue("a").result(), bool)
    await app.submit("send", b"{}", json=True, queue="mail", connection=object())
    app.sync.submit("send", b"{}", id="a")

    await send.using(priority=1).enqueue(5)  # wrong
    send.using(prioritty=1)  # wrong
    send.using(priority="x")  # wrong
    send.using(at="5")  # wrong
    send.using(retry=print)  # wrong
    send.using(run_in="thread")  # wrong
    send.sync.using(prioritty=1)  # wrong
    send.sync.using(priority="x")  # wrong
    await app.submit("send", b"{}", prioritty=1)  # wrong
    await app.submit("send", b"{}", priority="x")  # wrong
    app.sync.submit("send", b"{}", prioritty=1)  # wrong
    app.sync.submit("send", b"{}", priority="x")  # wrong
    app.task(prioritty=1)  # wrong
    app.task(priority="x")  # wrong
    app.task(delay=5)  # wrong
    app.task(wait=1)  # wrong
    app.task(batch=5, prioritty=1)  # wrong
    app.task(batch=5, memory="2GB")  # wrong
    app.task(send.fn, prioritty=1)  # wrong
"""
CALLS = """\
from collections.abc import Coroutine
from functools import partial
from typing import Any, assert_type

from holdfast import Context, Flow, Handle, Holdfast

app = Holdfast("memory://")


@app.task
def plain(to: str, copies: int = 1) -> bool:
    return bool(to)


@app.task(queue="mail")
async def awaited(to: str) -> int:
    return len(to)


@app.task
async def with_context(ctx: Context, to: str) -> int:
    return ctx.attempt


@app.task(batch=10)
def many(items: list[str]) -> list[int]:
    return [len(item) for item in items]


@app.task
def merge(sizes: list[int], name: str = "") -> str:
    return name


def unregistered(to: str) -> bool:
    return bool(to)


async def unregistered_with_context(ctx: Context, to: str) -> bool:
    return bool(to)


async def main(ctx: Context) -> None:
    assert_type(plain("a"), bool)
    begun = awaited("a")
    assert_type(await assert_type(begun, Coroutine[Any, Any, int]), int)
    assert_type(await with_context(ctx, "a"), int)
    assert_type(many(["a"]), list[int])
    plain(5)  # wrong
    await awaited()  # wrong
    await with_context("a")  # wrong
    many("a")  # wrong
    plain("a").upper()  # wrong

    assert_type(await app.enqueue(plain, "a", copies=2), Handle[bool])
    assert_type(await app.enqueue(awaited.using(delay=1), "a"), Handle[int])
    assert_type(await app.enqueue(with_context, "a"), Handle[int])
    assert_type(await app.enqueue(many, "a"), Handle[int])
    assert_type(app.sync.enqueue(plain, "a").result(), bool)
    assert_type(await app.enqueue(awaited, "a"), Handle[int])
    await app.enqueue(unregistered, "a")
    await app.enqueue(unregistered_with_context, "a")
    await app.enqueue(partial(unregistered, "a"))
    await app.enqueue("plain", 1, 2, three=4)
    await app.enqueue(plain, 5)  # wrong
    await app.enqueue(plain, "a", copy=2)  # wrong
    await app.enqueue(plain.using(delay=1), "a", "b")  # wrong
    await app.enqueue(with_context, 5)  # wrong
    await app.enqueue(with_context, ctx, "a")  # wrong
    await app.enqueue(many, ["a"])  # wrong
    await app.enqueue(unregistered, 5)  # wrong
    await app.enqueue(5)  # wrong
    app.sync.enqueue(plain, 5)  # wrong

    assert_type(await app.enqueue_many(plain.call(to) for to in "abc"), list[Handle[bool]])
    assert_type(await app.enqueue_many([app.call(awaited, "a")]), list[Handle[int]])
    assert_type(await app.enqueue_many([(plain, "a"), (awaited, "a")]), list[Handle[Any]])
    app.sync.enqueue_many([plain.call("a"), awaited.call("a")])
    plain.call(5)  # wrong
    app.call(plain, 5)  # wrong
    await app.enqueue_many([plain])  # wrong
    await app.enqueue_many([plain.call()])  # wrong

    flow = Flow()
    size = flow.add(awaited, "a")
    assert_type(size.result, int)
    total = flow.add(merge, [size.result, flow.add(with_context, "b").result], name="all")
    assert_type(total.result, str)
    assert_type(flow.add(plain.using(delay=1), total.result).after(size).result, bool)
    assert_type(flow.add(merge.call([1])).result, str)
    flow.add(plain, total)
    flow.add(merge, [size, size])
    assert_type(await (await app.enqueue_flow(flow)).handle(total).result(), str)
    flow.add(awaited, 5)  # wrong
    flow.add(awaited)  # wrong
    flow.add(awaited, size.result)  # wrong
    flow.add(merge, [total.result])  # wrong
    flow.add(awaited.call("a"), "b")  # wrong
    flow.add(unregistered, "a")  # wrong
"""
PROGRAMS = pytest.mark.parametrize("program", [OPTIONS, CALLS], ids=["options", "calls"])
TOOLS = Path(sys.executable).parent


def wrong(program):
    """The lines that a type checker must report."""
    return {number for number, line in enumerate(program.splitlines(), 1) if line.endswith("# wrong")}


def run(folder, program, *command):
    (folder / "program.py").write_text(program, encoding="utf-8")
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout


@PROGRAMS
def test_pyright_finds_every_mistake(tmp_path, program):
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard"}', encoding="utf-8")
    said = run(tmp_path, program, TOOLS / "basedpyright", "--outputjson", "--pythonpath", sys.executable, "program.py")
    found = {one["range"]["start"]["line"] + 1: one["message"] for one in json.loads(said)["generalDiagnostics"]}
    assert {*found} == wrong(program), said


@PROGRAMS
def test_mypy_finds_every_mistake(tmp_path, program):
    said = run(
        tmp_path, program, TOOLS / "mypy", "--strict", "--follow-imports=silent", "--cache-dir=cache", "program.py"
    )
    found = {int(number) for number in re.findall(r"^program\.py:(\d+): error:", said, re.MULTILINE)}
    assert found == wrong(program), said
