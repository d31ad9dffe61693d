"""Type checkers see every option and every argument: mypy and pyright find the same mistakes in a user's program."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.extended
PROGRAM = """\
from datetime import UTC, datetime, timedelta
from typing import assert_type

from holdfast import Backoff, Context, Handle, Holdfast, limit

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
    send.using(at=5)  # wrong
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
WRONG = {number for number, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith("# wrong")}
TOOLS = Path(sys.executable).parent


@pytest.fixture
def program(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    return tmp_path / "program.py"


def run(program, *command):
    return subprocess.run(command, cwd=program.parent, capture_output=True, text=True, check=False).stdout


def test_pyright_sees_every_option(program):
    (program.parent / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard"}', encoding="utf-8")
    said = run(program, TOOLS / "basedpyright", "--outputjson", "--pythonpath", sys.executable, "program.py")
    found = {one["range"]["start"]["line"] + 1: one["message"] for one in json.loads(said)["generalDiagnostics"]}
    assert {*found} == WRONG, said


def test_mypy_sees_every_option(program):
    said = run(program, TOOLS / "mypy", "--strict", "--follow-imports=silent", "--cache-dir=cache", "program.py")
    assert {int(number) for number in re.findall(r"^program\.py:(\d+): error:", said, re.MULTILINE)} == WRONG, said
