"""Functions that run one operation on a store, for tests."""

from __future__ import annotations

from typing import Any

from ..core.job import NewJob, Record
from ..core.operations import Ask, Change, Claims, Holder, Inserted, Note, Settlement, Where
from ..store.protocol import Batch, Store
from . import build


async def insert(store: Store, *jobs: NewJob) -> list[Inserted]:
    return list((await store.write(Batch(inserts=jobs))).inserts)


async def enqueue(store: Store, id: str | None = None, **options: Any) -> Record:
    """Insert one job that must be new, and read it back."""
    new = build.new_job(id, **options)
    [answer] = await insert(store, new)
    if answer.outcome != "created":
        raise AssertionError(f"{new.id} was not created: {answer}")
    return await job(store, answer.id)


async def answer_to(store: Store, ask: Ask) -> Claims:
    [claims] = (await store.write(Batch(asks=[ask]))).asks
    return claims


async def claim(store: Store, by: str | Holder = "ann", *queues: str, limit: int = 1, **options: Any) -> list[Record]:
    return (await answer_to(store, build.ask(by, *queues, limit=limit, **options))).records


async def claim_one(store: Store, by: str | Holder = "ann", *queues: str, **options: Any) -> Record:
    """Claim one job; there must be one."""
    [record] = await claim(store, by, *queues, **options)
    return record


async def running(store: Store, id: str | None = None, by: str | Holder = "ann", **options: Any) -> Record:
    """A job that was just inserted and claimed."""
    made = await enqueue(store, id, **options)
    record = await claim_one(store, by, made.queue)
    if record.id != made.id:
        raise AssertionError(f"claimed {record.id}, which came before {made.id}")
    return record


async def settle(store: Store, end: Settlement) -> bool:
    [written] = (await store.write(Batch(settles=[end]))).settles
    return written


async def note(store: Store, said: Note) -> bool:
    [written] = (await store.write(Batch(notes=[said]))).notes
    return written


async def apply(store: Store, wish: Change) -> bool:
    [made] = (await store.write(Batch(changes=[wish]))).changes
    return made


async def job(store: Store, id: str) -> Record:
    """The job of this id; there must be one."""
    [record] = await store.get([id])
    if record is None:
        raise AssertionError(f"there is no job {id}")
    return record


async def gone(store: Store, id: str) -> bool:
    return await store.get([id]) == [None]


async def every(store: Store, where: Where | None = None, page: int = 100) -> list[Record]:
    """All jobs that match, newest first, page by page."""
    found = await store.find(where or Where(), None, page)
    records = found.records
    while found.cursor is not None:
        found = await store.find(where or Where(), found.cursor, page)
        records = records + found.records
    return records
