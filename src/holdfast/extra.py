"""The core's own words about a job, which stores keep without reading them."""

from __future__ import annotations

import msgspec

from .clock import MICROS
from .job import Record


class Extra(msgspec.Struct, frozen=True, omit_defaults=True):
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
    forgiven: bool = False
    """The flow may succeed although this job died."""
    all_but: int | None = None
    """It waits until all jobs of its flow that were added before it have ended, but for so many."""
    upto: int = 0
    """So many of those have ended, counted from the first."""


_decode = msgspec.json.Decoder(Extra).decode
_encode = msgspec.json.Encoder().encode
_NOTHING = Extra()


def read(data: bytes | None) -> Extra:
    """What a record's `extra` says."""
    return _NOTHING if data is None else _decode(data)


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


def write(extra: Extra) -> bytes | None:
    """The same for a store; None where nothing is set."""
    return None if extra == _NOTHING else _encode(extra)
