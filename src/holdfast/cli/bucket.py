"""`holdfast bucket`: commands for a bucket store."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options
from .connect import make_app, parts_of

if TYPE_CHECKING:
    from ..store.protocol import Replayable

KINDS = (
    "revives", "inserts", "notes", "settles", "changes", "asks", "heartbeats", "leaves", "records", "watches", "tidies",
    "segments", "marks",
)  # fmt: skip
app = typer.Typer(no_args_is_help=True, help="Inspect a bucket store.")


@app.callback()
def bucket() -> None:
    """Inspect a bucket store."""


@app.command()
def log(
    first: Annotated[int, typer.Option("--from", min=1, help="Number of the first entry to print.")] = 1,
    as_json: options.AsJson = False,
    url: options.Url = None,
) -> None:
    """Print the entries of the bucket's log: number, time, writer and operations of each commit."""
    from ..store.protocol import Replayable

    store = parts_of(make_app(url)).runtime.store
    if not isinstance(store, Replayable):
        print(f"The {store.name} store has no log: `holdfast bucket log` needs a bucket store (s3://… or file:…).")
        raise typer.Exit(2)
    asyncio.run(_print(store, first, as_json=as_json))


async def _print(store: Replayable, first: int, *, as_json: bool) -> None:
    import msgspec

    from ..views import moment as aware
    from . import printing

    async for number, data in store.replay(first):
        entry: dict[str, Any] = msgspec.json.decode(data)
        if as_json:
            printing.json({"number": number, **entry})
            continue
        for batch in entry["batches"]:
            counts = ((kind, sum(map(_size, batch.get(kind, ())))) for kind in KINDS)
            what = ", ".join(f"{count} {kind}" for kind, count in counts if count)
            at = printing.moment(aware(batch["now"]))
            printing.echo(f"{number:>8}  {at}  {batch['writer']}.{batch['number']}  {what or 'nothing'}")


def _size(part: Any) -> int:
    """The number of operations in one part of a batch: the rows of a table, 1 for anything else."""
    return len(part["rows"]) if isinstance(part, dict) and "rows" in part else 1  # pyright: ignore[reportUnknownArgumentType]
