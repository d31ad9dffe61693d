"""The built-in task `shell`: a command line, run in a process tree of its own.

Whoever can enqueue can run commands where this task is registered; so it is only where somebody asked for it.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

from ...context import Context
from ...errors import ProcessFailed
from ...settings import redact
from ...task import Options
from ..processes import census
from ..processes.output import Printer
from ..processes.tree import HASTE, PATIENCE, Ending, Tree, unhindered

if TYPE_CHECKING:
    from ...app import Holdfast

SHELL_TASK = "shell"
SECRETS = ("HOLDFAST_SECRET", "HOLDFAST_TOKEN")
"""What a command has no use for."""


def allow_shell(app: Holdfast) -> None:
    """Let this app's workers run shell jobs."""
    clock = app.clock

    async def shell(
        ctx: Context, command: str, cwd: str | None = None, env: dict[str, str] | None = None, stdin: str | None = None
    ) -> dict[str, Any]:
        """Run a command line. Exit 0 succeeds; anything else fails."""
        began = clock.monotonic()
        printer = Printer(ctx.say, ctx.max_output)
        try:
            with _input(stdin) as given:
                tree = Tree(
                    ["/bin/sh", "-c", command], env=_environment(ctx, env), cwd=cwd, stdin=given, output=printer.fd
                )
        except (OSError, ValueError) as error:
            printer.start()
            await printer.finish()
            raise ProcessFailed(f"the command could not be started: {error}") from None
        printer.start()
        telling = asyncio.ensure_future(_tell_pid(ctx, tree))
        try:
            ending = await asyncio.shield(tree.ended)
        except asyncio.CancelledError:
            ending = await tree.end(HASTE if ctx.stopped_by in ("release", "lost") else PATIENCE)
            await unhindered(_finish(printer, ending, clock.monotonic() - began))
            raise
        finally:
            telling.cancel()
        duration = clock.monotonic() - began
        await unhindered(_finish(printer, ending, duration))
        if ending.code != 0:
            raise ProcessFailed(ending.words, code=ending.code, signal=ending.signal)
        return {"exit_code": 0, "duration": round(duration, 3)}

    app.registry.add(shell, SHELL_TASK, Options(), built_in=True)


async def _tell_pid(ctx: Context, tree: Tree) -> None:
    await ctx.say(pid=await tree.started)


async def _finish(printer: Printer, ending: Ending, duration: float) -> None:
    ended = {"exit_code": ending.code, "signal": ending.signal, "duration": round(duration, 3)}
    await printer.finish(meta={SHELL_TASK: ended})


def _environment(ctx: Context, given: dict[str, str] | None) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in SECRETS}
    url = kept.get("HOLDFAST_URL", "")
    if redact(url) != url:  # a command that is to enqueue further jobs can be given one (`env`)
        del kept["HOLDFAST_URL"]
    own = {"HOLDFAST_JOB_ID": ctx.job.id, "HOLDFAST_ATTEMPT": str(ctx.attempt), "HOLDFAST_FENCE": str(ctx.fence)}
    return {**kept, **own, **(given or {}), census.MARKER: census.marker(ctx.job.id, ctx.fence)}


@contextmanager
def _input(text: str | None) -> Generator[int | IO[bytes]]:
    """The command's standard input: a file, so that nobody waits for anybody."""
    if text is None:
        yield subprocess.DEVNULL
        return
    with tempfile.TemporaryFile() as file:
        file.write(text.encode("utf-8", "surrogateescape"))
        file.seek(0)
        yield file
