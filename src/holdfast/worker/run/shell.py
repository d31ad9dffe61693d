"""The built-in task `shell`: runs a command line in its own process tree.

Everyone who can enqueue can run commands where this task is registered, so it must be enabled explicitly.
"""

from __future__ import annotations

import asyncio
import fnmatch
import os
import re
import subprocess
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import IO, TYPE_CHECKING, Any

from ...core.errors import ProcessFailed
from ...core.job import SHELL_TASK
from ...core.settings import redact
from ...tasks.context import Context
from ...tasks.options import Options
from ..processes import process_table
from ..processes.output import OutputWriter
from ..processes.printer import Printer
from ..processes.tree import SHORT_TERM_GRACE, TERM_GRACE, Ending, Tree, unhindered

if TYPE_CHECKING:
    from ...parts import Parts

PASSED = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_*", "TZ", "TMPDIR", "TERM", "VIRTUAL_ENV"),
    *("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy"),
    "HOLDFAST_JOB_*",
    "LD_LIBRARY_PATH",  # the interpreter of the process guard may need it to start
)
"""The environment variables of the worker that a command gets; `pass_env` adds to them."""
NAMED_ONLY = ("HOLDFAST_SECRET", "HOLDFAST_TOKEN", "HOLDFAST_URL")
"""Variables that only their full name in `pass_env` passes on, no pattern (the URL only if it has a secret)."""
NOT_FOUND = 127
"""The exit code of a shell for an unknown command."""
HINT = "; the command gets only some environment variables: add more with `holdfast worker start --pass-env NAME`"


def allow_shell(parts: Parts, pass_env: Sequence[str] | None = None) -> None:
    """Let this app's workers run shell jobs; `pass_env` takes precedence over the app's setting."""
    runtime = parts.runtime
    clock = runtime.clock

    async def shell(
        ctx: Context, command: str, cwd: str | None = None, env: dict[str, str] | None = None, stdin: str | None = None
    ) -> dict[str, Any]:
        """Run a command line. Exit 0 succeeds; anything else fails."""
        began = clock.monotonic()
        writer = OutputWriter(ctx.job.id, ctx.say, ctx.max_output, asyncio.get_running_loop())
        passed = runtime.current_settings().pass_env if pass_env is None else tuple(pass_env)
        surroundings = _environment(ctx, env, passed)
        printer = Printer(writer)
        try:
            with _input(stdin) as given:
                tree = Tree(["/bin/sh", "-c", command], env=surroundings, cwd=cwd, stdin=given, output=printer.fd)
        except BaseException as error:
            await unhindered(printer.end())
            if isinstance(error, OSError | ValueError):
                raise ProcessFailed(f"the command could not be started: {error}") from None
            raise
        printer.handed_over()
        noting_pid = asyncio.ensure_future(_note_pid(ctx, tree))
        try:
            ending = await asyncio.shield(tree.ended)
        except asyncio.CancelledError:
            ending = await tree.end(SHORT_TERM_GRACE if ctx.stopped_by in ("release", "lost") else TERM_GRACE)
            await unhindered(_finish(printer, writer, ending, clock.monotonic() - began))
            raise
        finally:
            noting_pid.cancel()
        duration = clock.monotonic() - began
        await unhindered(_finish(printer, writer, ending, duration))
        if ending.code != 0:
            hint = HINT if ending.code == NOT_FOUND else ""
            raise ProcessFailed(ending.words + hint, code=ending.code, signal=ending.signal)
        return {"exit_code": 0, "duration": round(duration, 3)}

    parts.registry.add(shell, SHELL_TASK, Options(), built_in=True)


async def _note_pid(ctx: Context, tree: Tree) -> None:
    await ctx.say(pid=await tree.started)


async def _finish(printer: Printer, writer: OutputWriter, ending: Ending, duration: float) -> None:
    ended = {"exit_code": ending.code, "signal": ending.signal, "duration": round(duration, 3)}
    await printer.end()
    await writer.finish(meta={SHELL_TASK: ended})


def _environment(ctx: Context, given: dict[str, str] | None, passed: tuple[str, ...]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if _passes(name, value, passed)}
    own = {"HOLDFAST_JOB_ID": ctx.job.id, "HOLDFAST_ATTEMPT": str(ctx.attempt), "HOLDFAST_FENCE": str(ctx.fence)}
    return {**kept, **own, **(given or {}), process_table.MARKER: process_table.marker(ctx.job.id, ctx.fence)}


def _passes(name: str, value: str, passed: tuple[str, ...]) -> bool:
    if name in NAMED_ONLY and (name != "HOLDFAST_URL" or redact(value) != value):
        return name in passed
    return _pattern((*PASSED, *passed)).fullmatch(name) is not None


@cache
def _pattern(names: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(fnmatch.translate(name) for name in names))


@contextmanager
def _input(text: str | None) -> Generator[int | IO[bytes]]:
    """The command's standard input: a file, so that the writer never blocks."""
    if text is None:
        yield subprocess.DEVNULL
        return
    with tempfile.TemporaryFile() as file:
        file.write(text.encode("utf-8", "surrogateescape"))
        file.seek(0)
        yield file
