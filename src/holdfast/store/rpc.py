"""The store protocol over HTTP: one POST per call, arguments and answer as JSON.

JSON rather than MessagePack, because `meta` may contain integers of any size.
"""

from __future__ import annotations

from typing import Any, Generic, Literal, TypeVar

import msgspec

from ..core import operations as ops
from ..core.job import Record
from .protocol import Answers, Batch, Finding, Versioned

PROTOCOL = 5
"""Version of this protocol. Client and server must have the same; every incompatible change raises it."""
PATH = "/v1/store"
PROTOCOL_HEADER = "Holdfast-Protocol"
"""In every request, and in every answer of a Holdfast server; a proxy's own answers do not have it."""
REQUEST_HEADER = "Holdfast-Request"
"""Id of a request that must not be made twice, so that its answer can be read again."""
EMPTY_LINE_EVERY = 15.0
"""Seconds without notifications on a stream after which the server sends an empty line."""

A = TypeVar("A")


class Method(msgspec.Struct, Generic[A], frozen=True):
    """One call: its arguments in order, its answer, and what the client does when that answer is lost.

    `reads`, `repeats`: repeat the call, which is harmless. `once`: read its answer again, never repeat the call.
    """

    name: str
    arguments: Any
    answer: Any
    kind: Literal["reads", "repeats", "once"] = "reads"

    def reader(self) -> msgspec.json.Decoder[A]:
        return msgspec.json.Decoder(self.answer)


class Hello(msgspec.Struct, frozen=True):
    """What a server reports about itself."""

    version: str
    store: str
    """The name of the server's store."""
    features: tuple[str, ...]
    """The features of that store through this server (`Store.features`)."""
    roles: tuple[str, ...]
    """The roles of the caller's token; empty where the server requires no token."""


class Topics(msgspec.Struct, frozen=True):
    """A change of the topics of a stream of notifications."""

    stream: str
    add: list[str]
    remove: list[str]


class Problem(msgspec.Struct, frozen=True):
    """A problem document (RFC 9457): `error` is the name of the error class that the caller is to raise."""

    type: str = ""
    title: str = ""
    status: int = 0
    detail: str = ""
    error: str = ""


HELLO = Method[Hello]("hello", tuple[()], Hello)
WRITE = Method[Answers]("write", tuple[Batch], Answers, "once")
HEARTBEAT = Method[list[ops.HeartbeatReply]]("heartbeat", tuple[list[ops.Holder]], list[ops.HeartbeatReply], "repeats")
LEAVE = Method[None]("leave", tuple[list[str]], None, "repeats")
EXPIRED = Method[list[ops.Lost]]("expired", tuple[int, str | None], list[ops.Lost])
TIDY = Method[ops.Tidied]("tidy", tuple[int], ops.Tidied, "repeats")
GET = Method[list[Record | None]]("get", tuple[list[str]], list[Record | None])
FIND = Method[ops.Found]("find", tuple[ops.Where, str | None, int], ops.Found)
KEY_OWNERS = Method[list[str | None]]("key_owners", tuple[list[str]], list[str | None])
OUTPUT = Method[list[ops.Printed]]("output", tuple[str, int, int, bool], list[ops.Printed])
STATS = Method[list[ops.QueueStats]]("stats", tuple[()], list[ops.QueueStats])
TRANSITIONS = Method[ops.Transitions]("transitions", tuple[str | None, int], ops.Transitions)
STATS_BY_MINUTE = Method[list[ops.MinuteStats]]("stats_by_minute", tuple[int], list[ops.MinuteStats])
HOLDERS = Method[list[ops.HolderInfo]]("holders", tuple[()], list[ops.HolderInfo])
RECORDS = Method[dict[str, dict[str, Versioned]]]("records", tuple[list[str]], dict[str, dict[str, Versioned]])
PUT_RECORD = Method[bool]("put_record", tuple[str, str, bytes | None, int | None], bool, "once")
WARNINGS = Method[list[Finding]]("warnings", tuple[()], list[Finding])
NOW = Method[int]("now", tuple[()], int)
WAITING_CALLS = Method[ops.WaitingCalls]("waiting_calls", tuple[str | None, ops.CallsCursor | None], ops.WaitingCalls)
"""By queue, from a cursor on: all that `holdfast check` needs, for a token with the role `read`."""

PLAIN = (
    HEARTBEAT,
    LEAVE,
    EXPIRED,
    TIDY,
    GET,
    FIND,
    KEY_OWNERS,
    OUTPUT,
    STATS,
    TRANSITIONS,
    STATS_BY_MINUTE,
    HOLDERS,
    NOW,
)
"""The calls that a server passes to its store unchanged."""

RECALL = "recall"
"""Reads again the answer to the request that the header names."""
LISTEN = "listen"
"""Opens a stream of notifications: a line with its name, then a line of JSON text per notified topic."""
TOPICS = Method[None]("topics", tuple[Topics], None, "repeats")
