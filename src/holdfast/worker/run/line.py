"""The protocol between a worker and a child process that runs its jobs: the messages and their framing."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from ...core.job import Record
from ...core.lifecycle import Outcome
from ...core.operations import Note, Settlement


class Load(msgspec.Struct, tag=True):
    """To the child, first message: load the app."""

    address: str
    imports: list[str]
    path: list[str]
    log_level: int


class Start(msgspec.Struct, tag=True):
    """To the child: run this claim. With `redirect`, its output goes to a pipe that is passed on the second socket."""

    record: Record
    max_payload: int
    max_output: int
    log_level: int
    """The lowest level that is stored of what it prints and logs, as a number of `logging`; OFF: its output is not."""
    redirect: bool
    store_id: str | None = None
    success: Settlement | None = None
    """How it ends if it succeeds, except for the result; None: it cannot complete itself in its own transaction."""


class Stop(msgspec.Struct, tag=True):
    """To the child: make `ctx.cancelled` true."""

    why: str


class Look(msgspec.Struct, tag=True):
    """To the child: send the position of the job."""


class Answer(msgspec.Struct, tag=True):
    """To the child: whether its note was written."""

    number: int
    written: bool = False
    error: str | None = None


class WriteNote(msgspec.Struct, tag=True):
    """From the child: write this note, and answer."""

    number: int
    note: Note


class Log(msgspec.Struct, tag=True):
    """From the child: a log record."""

    logger: str
    level: int
    message: str
    fields: dict[str, Any]


class Completed(msgspec.Struct, tag=True):
    """From the child: the success of the claim is stored; its code may run on."""


class Position(msgspec.Struct, tag=True):
    """From the child: the stack of the job, as asked, or when it was interrupted, before its `finally` blocks run."""

    frames: list[str]
    interrupted: bool = False


class Done(msgspec.Struct, tag=True):
    """From the child: the outcome of the claim."""

    outcome: Outcome


class Broken(msgspec.Struct, tag=True):
    """From the child: the app could not be loaded."""

    error: str
    traceback: str


ToChild = Load | Start | Stop | Look | Answer
ToWorker = WriteNote | Log | Completed | Position | Done | Broken
_encode = msgspec.msgpack.encode


def frame(message: ToChild | ToWorker) -> bytes:
    """One message, prefixed with its length (4 bytes, big-endian)."""
    data = _encode(message)
    return len(data).to_bytes(4, "big") + data


async def next_frame(reader: asyncio.StreamReader) -> bytes | None:
    """The bytes of the next message; None at the end of the connection."""
    try:
        size = int.from_bytes(await reader.readexactly(4), "big")
        return await reader.readexactly(size)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
