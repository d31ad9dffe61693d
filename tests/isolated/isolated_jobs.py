"""Tasks that run in processes of their own, in every way that such a process can end."""

import asyncio
import contextvars
import ctypes
import logging
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from holdfast import Context, Depends, Discard, Holdfast, Snooze

app = Holdfast(retry_base=0.05, retry_jitter=0, max_attempts=1)


@app.task(run_in="isolated")
def double(ctx: Context, n: int) -> int:
    print("begun", n)
    ctx.progress(1, 2, "half")
    ctx.log.info("in the middle")
    logging.getLogger("shop").info("at the end")
    return n * 2


@app.task(run_in="isolated")
async def double_later(n: int) -> int:
    return n * 2


@app.task(run_in="isolated")
def variable(name: str) -> str | None:
    return os.environ.get(name)


def emit(ctx: Context) -> str:
    for number in range(100):
        ctx.emit(number)
    return "emitted"


async def emit_on_loop(ctx: Context) -> None:
    for number in range(100):
        await ctx.emit(number)
    raise ValueError("no")


emit_alone = app.task(run_in="isolated", name="emit_alone")(emit)
emit_pooled = app.task(run_in="process", name="emit_pooled")(emit_on_loop)


def speak() -> None:
    print("printed")
    print("warned", file=sys.stderr)
    subprocess.run(["echo", "by another process"], check=True)
    thread = threading.Thread(target=print, args=("by another thread",))
    thread.start()
    thread.join()
    library = logging.getLogger("library")
    library.handlers, library.propagate = [logging.StreamHandler()], False
    library.error("logged")
    print("no end", end="")


@app.task(run_in="isolated")
def shout(threads: int, number: int, size: int) -> None:
    library = logging.getLogger("shouts")
    library.handlers, library.propagate = [logging.NullHandler()], False

    def log(name: str) -> None:
        for n in range(number):
            library.warning("%s", f"{name} {n} " + name * size)

    speakers = [
        threading.Thread(target=contextvars.copy_context().run, args=(log, chr(ord("a") + n))) for n in range(threads)
    ]
    for speaker in speakers:
        speaker.start()
    for speaker in speakers:
        speaker.join()


class Broken:
    def __str__(self) -> str:
        raise RuntimeError("no text")


@app.task(run_in="isolated")
def misuse_logging() -> str:
    library = logging.getLogger("library")
    library.warning("%d", "text")
    library.warning(Broken())
    library.warning("half \udcff")
    return "done"


@app.task(run_in="isolated")
def mumble() -> None:
    subprocess.run(["printf", "no end"], check=True)
    print("printed")


speak_alone = app.task(run_in="isolated", name="speak_alone")(speak)
speak_pooled = app.task(run_in="process", name="speak_pooled")(speak)
warn_pooled = app.task(run_in="process", name="warn_pooled", log_level="WARNING")(speak)
quiet_alone = app.task(run_in="isolated", name="quiet_alone", log_level="OFF")(speak)
quiet_pooled = app.task(run_in="process", name="quiet_pooled", log_level="OFF")(speak)


@app.task(run_in="isolated")
def nothing() -> None:
    pass


@app.task(run_in="isolated")
def leave() -> None:
    sys.exit(3)


@app.task(run_in="isolated")
def leave_hard() -> None:
    os._exit(4)


@app.task(run_in="isolated")
def crash() -> None:
    ctypes.string_at(0)


@app.task(run_in="isolated")
def kill_self() -> None:
    os.kill(os.getpid(), 9)


class Untold(Exception):
    def __init__(self, lock: object) -> None:
        super().__init__(lock)

    def __reduce__(self) -> str:
        raise TypeError("this cannot travel")


@app.task(run_in="isolated")
def raise_untold() -> None:
    raise Untold(threading.Lock())


@app.task(run_in="isolated")
def return_a_lock() -> object:
    return threading.Lock()


@app.task(run_in="isolated")
def snooze_once(ctx: Context) -> str:
    if ctx.last_checkpoint is None:
        ctx.checkpoint({"seen": True})
        raise Snooze(0.05)
    return "awake"


@app.task(run_in="isolated")
def discard() -> None:
    raise Discard("not worth it")


@app.task(run_in="isolated", memory="150MB")
def eat() -> None:
    eaten = []
    while True:
        eaten.append(bytearray(5_000_000))
        time.sleep(0.01)


@app.task(run_in="isolated", timeout=1)
def linger(name: str) -> None:
    child = subprocess.Popen(["sleep", name], start_new_session=True)
    child.wait()


@app.task(run_in="isolated")
def wait_for_the_end(path: str) -> str:
    """Sees that it shall stop, and tidies up."""
    Path(path).write_text("begun")
    try:
        time.sleep(60)
    finally:
        Path(path).write_text("tidied")
    return "never"


@app.task(run_in="process")
def who(n: int) -> tuple[int, int]:
    print("pooled", n)
    return os.getpid(), n


@app.task(run_in="process")
def die() -> None:
    os._exit(9)


@app.task(run_in="isolated")
def hold_the_gil(seconds: int, path: str) -> str:
    """Computes in C without letting go of the GIL."""
    with Path(path).open("a") as runs:
        runs.write("run\n")
    ctypes.PyDLL(None).sleep(seconds)  # PyDLL: the GIL stays held
    return "done"


@app.task
def hold_the_workers_gil(seconds: int, path: str) -> str:
    return hold_the_gil.fn(seconds, path)


@app.task(run_in="isolated")
def in_parts(ctx: Context, parts: int) -> list[int]:
    """Saves how far it got, and dies in the middle of its first attempt."""
    done = ctx.last_checkpoint or []
    for part in range(len(done), parts):
        done = [*done, part]
        ctx.checkpoint(done)
        ctx.progress(part + 1, parts)
        if part == parts // 2 and ctx.attempt == 1:
            os.kill(os.getpid(), 9)
    return done


async def opened(ctx: Context):
    print("opened for", ctx.job.task)
    yield "opened"
    print("closed")


def reading(opened: str = Depends(opened, scope="job")):
    print("reading")
    yield f"{opened} and read"
    print("read")


@app.task(run_in="isolated")
def depending(*, text: str = Depends(reading)) -> str:
    print(text)
    return text


@app.task(run_in="process")
async def depending_later(
    *, text: str = Depends(reading), pid: int = Depends(os.getpid, scope="worker")
) -> list[object]:
    print(text)
    return [text, pid == os.getpid()]


def broken():
    raise OSError("no route")


@app.task(run_in="isolated")
def depending_on_broken(*, it: None = Depends(broken, scope="worker")) -> None: ...


@app.task(run_in="process")
def save_and_wait(ctx: Context, until: str, ended: str) -> None:
    with ctx.transaction(result="saved"):
        pass
    while not Path(until).exists():
        time.sleep(0.02)
    Path(ended).touch()


@app.task(run_in="process")
def save_twice(ctx: Context) -> None:
    for number in (1, 2):
        with ctx.transaction(result=number) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS saved (number INTEGER)")
            connection.execute("INSERT INTO saved VALUES (?)", (number,))


@app.task(run_in="process", timeout=1)
def hang() -> None:
    _hang()


def _hang() -> None:
    time.sleep(60)  # the innermost


@app.task(run_in="process", timeout=1)
async def hang_later() -> None:
    await asyncio.gather(_hang_later())


async def _hang_later() -> None:
    await asyncio.Event().wait()  # the innermost


class _NoSource:
    def get_source(self, name: str) -> str:
        raise ValueError(f"no source of {name}")


_names = {"__name__": "unreadable", "__loader__": _NoSource(), "time": time}
exec(compile("def sleep_unread():\n    time.sleep(60)  # the innermost\n", "/nowhere/unread.py", "exec"), _names)


@app.task(run_in="process", timeout=1)
def hang_unread() -> None:
    try:
        _names["sleep_unread"]()
    except ValueError:
        _names["sleep_unread"]()
