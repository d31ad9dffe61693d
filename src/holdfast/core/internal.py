"""The core's own words about a job, which stores keep without reading them."""

from __future__ import annotations

from typing import Literal

import msgspec

from .clock import MICROS
from .job import Record

NotRun = Literal["failed_parent", "not_needed"]
"""Why a job of a flow ended without a run: a job before it failed or is gone; or there was nothing to compensate."""


class Internal(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a job needs besides what every store knows of it. Nothing of it is set for most jobs."""

    expires_at: int | None = None
    """Too late to start, from then on."""
    expires_in: float | None = None
    """The same, as seconds from its creation: by the store's clock alone."""
    flow: str | None = None
    """The flow that it belongs to."""
    after: tuple[tuple[int, str], ...] = ()
    """Its parents by their numbers in the flow, and what is to happen when one dies: fail, ignore or compensate."""
    holes: bool = False
    """Its payload has places for its parents' results."""
    tolerated: bool = False
    """The flow may succeed although this job died."""
    allow_unfinished: int | None = None
    """It waits until all jobs of its flow that were added before it have ended, but for so many."""
    upto: int = 0
    """So many of those have ended, counted from the first."""
    not_run: NotRun | None = None
    """It was cancelled because of how those before it ended. Written by the change that cancels it, and cleared by the
    one that has it wait again. The flow's end goes by this; the error of the job is for people."""


TIME_LIMIT = 2**60
"""Microseconds, or seconds, of a time that makes sense."""
ON_DEAD = frozenset({"fail", "ignore", "compensate"})
_decode = msgspec.json.Decoder(Internal).decode
_encode = msgspec.json.Encoder().encode
_NOTHING = Internal()


def read(data: bytes | None) -> Internal:
    """What a record's `extra` says; nothing where it cannot be decoded (`damage.py` says that it cannot)."""
    if data is None:
        return _NOTHING
    try:
        return decode(data)
    except ValueError:
        return _NOTHING


def decode(data: bytes) -> Internal:
    """The same; ValueError says what is wrong with it."""
    try:
        said = _decode(data)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    for name in ("expires_at", "expires_in"):
        value = getattr(said, name)
        if value is not None and not 0 <= value < TIME_LIMIT:
            raise ValueError(f"{name} is out of range")
    if any(number < 0 or on_dead not in ON_DEAD for number, on_dead in said.after):
        raise ValueError("after names no job, or no rule for its death")
    if said.upto < 0 or (said.allow_unfinished or 0) < 0 or said.flow == "":
        raise ValueError("flow, upto or allow_unfinished is out of range")
    return said


def check(id: str, data: bytes) -> None:
    """ValueError says why no job of this id can have this."""
    flow = decode(data).flow
    if flow is None or flow == id:
        return
    number = id.removeprefix(f"{flow}.")
    if number == id or not (number.isascii() and number.isdecimal()):
        raise ValueError(f"it cannot be of flow {flow!r:.200}, whose jobs have its id, a dot and a number")


def expires_at(record: Record) -> int | None:
    """When it is too late for a job to start, by the store's clock; None: never."""
    said = read(record.extra)
    return said.expires_at if said.expires_in is None else record.created_at + int(said.expires_in * MICROS)


def is_flow(record: Record) -> bool:
    """Whether it is a flow's own job, which stands for all of it."""
    return record.extra is not None and read(record.extra).flow == record.id


def flow_of(record: Record) -> str | None:
    """The flow that a job belongs to; a flow's own job belongs to none."""
    flow = read(record.extra).flow
    return None if flow == record.id else flow


def in_flow(record: Record) -> bool:
    """Whether a flow may wait for this job's end. Where its `extra` cannot be decoded, its id says so."""
    if record.extra is None:
        return False
    try:
        return decode(record.extra).flow is not None
    except ValueError:
        return "." in record.id


def in_next_life(data: bytes | None) -> bytes | None:
    """The same for a job that is run again: without a time limit to start, and without why it was not run.

    What cannot be decoded stays as it is.
    """
    if data is None:
        return None
    try:
        return write(msgspec.structs.replace(decode(data), expires_at=None, expires_in=None, not_run=None))
    except ValueError:
        return data


def write(extra: Internal) -> bytes | None:
    """The same for a store; None where nothing is set."""
    return None if extra == _NOTHING else _encode(extra)
