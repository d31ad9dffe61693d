"""`holdfast logs`: print the output of a job."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from . import options
from .connect import parts_of, with_app

if TYPE_CHECKING:
    from ..app import Holdfast


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
        from ..core.log_lines import Splitter, as_text
        from ..core.operations import Printed
        from .printing import json

        job = await app.job(id)
        wanted: int | None = None
        if attempt is not None:
            known = {line.number: line.fence for line in job.history if line.reset_count == job.reset_count}
            if job.state.value == "running":
                known[job.attempt] = job.fence
            wanted = known.get(attempt, -1)
        if as_json:
            async for line in app.handle(id).logs(follow=follow):
                if wanted in (None, line.fence):
                    json(line)
                    sys.stdout.flush()
            return
        splitter = Splitter()
        async for piece in follow_output(parts_of(app).handles, id, follow=follow):
            for part in splitter.split(piece):
                if wanted in (None, part.fence):
                    data = part.data if isinstance(part, Printed) else f"{as_text(part)}\n".encode()
                    sys.stdout.buffer.write(data)
            sys.stdout.flush()

    with_app(url, show)
