"""`holdfast stream` and `holdfast wait` in a terminal."""

import os
import pty
import subprocess

from support.terminal import HOLDFAST

TASKS = """
import asyncio
from pathlib import Path

from holdfast import Context, Holdfast

app = Holdfast(retry_base=0.01, retry_jitter=0)


@app.task(max_attempts=2)
async def talk(ctx: Context) -> str:
    await ctx.emit("plain\\x1b[31m text")
    await ctx.emit({"attempt": ctx.attempt})
    if ctx.attempt == 1:
        raise ValueError
    ctx.progress(3, 4, "nearly")
    while not Path("go").exists():
        await asyncio.sleep(0.01)
    return "done"
"""


def test_a_stream_and_its_end_in_a_terminal(terminal):
    (terminal.folder / "shop.py").write_text(TASKS)
    terminal("-A", "shop:app", "enqueue", '{"task": "talk", "id": "t"}')
    assert "has not ended after 0 s; it continues" in terminal("wait", "t", "--timeout", "0", code=1)
    terminal("-A", "shop:app", "worker", "start", "--count", "1")
    terminal.until(lambda: terminal.job("t")["progress"], 30)
    assert terminal("stream", "t", "--no-follow").splitlines() == [
        "plain\\x1b[31m text", '{"attempt":1}', "plain\\x1b[31m text", '{"attempt":2}',
        "holdfast: note: attempt 2 begins here",
    ]  # fmt: skip
    screen = in_a_terminal(terminal, "wait", "t", until="75%")
    assert "running" in screen
    assert "nearly  ends about " in screen
    (terminal.folder / "go").touch()
    assert terminal("wait", "t") == "Job t succeeded\n"
    assert terminal.json("wait", "t")["result"] == "done"
    chunks = terminal("stream", "t", "--json").splitlines()
    assert len(chunks) == 4
    assert '"attempt":2,"first":true,"missed":0' in chunks[2]
    terminal("worker", "stop")


def test_mistakes(terminal):
    terminal("enqueue", '{"id": "odd", "command": "true"}')
    terminal("cancel", "odd")
    assert terminal("wait", "odd", code=1) == "Job odd cancelled: cancelled before it ran\n"
    for command in ("wait", "stream"):
        assert "no job 'unknown' in this store" in terminal(command, "unknown", code=1)
    assert "--position" in terminal("stream", "odd", "--position", "-1", code=2)
    assert "position must be" in terminal("stream", "odd", "--position", str(2**64), code=2)
    assert "--timeout must be" in terminal("wait", "odd", "--timeout", "nan", code=2)
    assert "There are no matching operator actions in" in terminal("audit", "--action", "unknown")


def in_a_terminal(terminal, *words: str, until: str) -> str:
    """What a command shows on a terminal, once that contains a text; then it is ended."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*HOLDFAST, *words],
        cwd=terminal.folder,
        env=terminal.env | {"COLUMNS": "200"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    seen = ""
    try:
        while until not in seen or "ends about" not in seen:
            seen += os.read(ours, 65536).decode()
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    return seen
