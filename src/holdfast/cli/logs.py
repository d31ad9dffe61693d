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
    """Print the output of a job: the newest stored part of stdout and stderr, of all attempts."""

    async def show(app: Holdfast) -> None:
        from ..client.output import follow_output

        job = await app.job(id)
        wanted: int | None = None
        if attempt is not None:
            known = {line.number: line.fence for line in job.history if line.reset_count == job.reset_count}
            if job.state.value == "running":
                known[job.attempt] = job.fence
            wanted = known.get(attempt, -1)
        parts = parts_of(app)
        async for piece in follow_output(parts.handles, id, follow=follow):
            if wanted is not None and piece.fence != wanted:
                continue
            if as_json:
                from .printing import json

                text = piece.data.decode("utf-8", "replace")
                json({"position": piece.position, "fence": piece.fence, "text": text})
            else:
                sys.stdout.buffer.write(piece.data)
            sys.stdout.flush()

    with_app(url, show)
