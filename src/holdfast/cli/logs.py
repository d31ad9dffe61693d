"""`holdfast logs`: print the output of a job."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ..core.errors import JobNotFound
from . import options
from .connect import parts_of, with_app

if TYPE_CHECKING:
    from ..app import Holdfast
    from ..core.log_lines import LogLine
    from ..core.operations import Printed


def logs(
    id: options.JobId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow the output until the job has ended.")] = False,
    attempt: Annotated[int | None, typer.Option(min=1, help="Only this attempt since the job's last reset.")] = None,
    url: options.Url = None,
    as_json: options.AsJson = False,
) -> None:
    """Print what a job has printed and logged, in all attempts: the newest stored part."""

    async def show(app: Holdfast) -> None:
        from ..client.output import follow_output
        from ..core.log_lines import Splitter
        from .printing import json

        await app.job(id)  # JobNotFound, rather than no output
        wanted = _Wanted(app, id, attempt)
        if as_json:
            async for line in app.handle(id).logs(follow=follow):
                if await wanted.has(line.fence):
                    json(line)
                    sys.stdout.flush()
            return
        splitter, text = Splitter(), _Text()
        async for piece in follow_output(parts_of(app).handles, id, follow=follow):
            for part in splitter.split(piece):
                if await wanted.has(part.fence):
                    text.write(part)
            sys.stdout.flush()
        for part in splitter.rest():
            if await wanted.has(part.fence):
                text.write(part)
        sys.stdout.flush()

    with_app(url, show)


class _Wanted:
    """Which claims of a job are those of the wanted attempt since its last reset; None: all."""

    def __init__(self, app: Holdfast, id: str, attempt: int | None) -> None:
        self._app = app
        self._id = id
        self._attempt = attempt
        self._known: dict[int, bool] = {}

    async def has(self, fence: int) -> bool:
        if self._attempt is None:
            return True
        if fence not in self._known:  # a claim that began meanwhile
            try:
                job = await self._app.job(self._id)
            except JobNotFound:  # removed at its end
                return False
            self._known = {
                line.fence: (line.number, line.reset_count) == (self._attempt, job.reset_count) for line in job.history
            }
            if job.state.value == "running":
                self._known[job.fence] = job.attempt == self._attempt
        return self._known.setdefault(fence, False)


class _Text:
    """Writes the parts of the output, each marked line at the beginning of a line."""

    def __init__(self) -> None:
        self._open = False

    def write(self, part: Printed | LogLine) -> None:
        from ..core.log_lines import LogLine, as_text

        if isinstance(part, LogLine):
            data = f"{as_text(part)}\n".encode()
            data = b"\n" + data if self._open else data
        else:
            data = part.data
        self._open = not data.endswith(b"\n")
        sys.stdout.buffer.write(data)
