"""The store protocol as messages: one POST per call, the arguments and the answer as JSON of the values themselves.

JSON rather than MessagePack, because whatever a store keeps must arrive: `meta` may hold numbers of any size.
"""

from __future__ import annotations

from typing import Any, Generic, Literal, TypeVar

import msgspec

from ..core.job import Record
from ..core.operations import (
    Found,
    HeartbeatReply,
    Holder,
    HolderInfo,
    Lost,
    MinuteStats,
    Printed,
    QueueStats,
    Tidied,
    Transitions,
    Where,
)
from .protocol import Answers, Batch, Finding, Versioned

PROTOCOL = 5
"""Both sides must speak the same; it rises with every change that the other side would not understand."""
PATH = "/v1/store"
PROTOCOL_HEADER = "Holdfast-Protocol"
"""In every request, and in every answer that comes from a Holdfast server rather than from something in between."""
REQUEST_HEADER = "Holdfast-Request"
"""Names a request that must not be made twice, so that its answer can be asked for again."""
EMPTY_LINE_EVERY = 15.0
"""Seconds of silence on a stream of hints after which the server sends an empty line."""

A = TypeVar("A")


class Method(msgspec.Struct, Generic[A], frozen=True):
    """One call: its arguments in order, its answer, and what is to be done when that answer is lost.

    `reads`: ask again. `repeats`: make it again, which does no harm. `once`: ask for its answer, never make it again.
    """

    name: str
    arguments: Any
    answer: Any
    kind: Literal["reads", "repeats", "once"] = "reads"

    def reader(self) -> msgspec.json.Decoder[A]:
        """What decodes its answer."""
        return msgspec.json.Decoder(self.answer)


class Hello(msgspec.Struct, frozen=True):
    """What a server says of itself."""

    version: str
    store: str
    """The name of the store behind it."""
    features: tuple[str, ...]
    """What that store can do through this server; `sweeps`: nobody else needs to look after it."""
    roles: tuple[str, ...]
    """What the caller's token allows; empty where the server asks for none."""


class Topics(msgspec.Struct, frozen=True):
    """A change of what a stream of hints is about."""

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
HEARTBEAT = Method[list[HeartbeatReply]]("heartbeat", tuple[list[Holder]], list[HeartbeatReply], "repeats")
LEAVE = Method[None]("leave", tuple[list[str]], None, "repeats")
EXPIRED = Method[list[Lost]]("expired", tuple[int, str | None], list[Lost])
TIDY = Method[Tidied]("tidy", tuple[int], Tidied, "repeats")
GET = Method[list[Record | None]]("get", tuple[list[str]], list[Record | None])
FIND = Method[Found]("find", tuple[Where, str | None, int], Found)
KEY_OWNERS = Method[list[str | None]]("key_owners", tuple[list[str]], list[str | None])
OUTPUT = Method[list[Printed]]("output", tuple[str, int, int], list[Printed])
STATS = Method[list[QueueStats]]("stats", tuple[()], list[QueueStats])
TRANSITIONS = Method[Transitions]("transitions", tuple[str | None, int], Transitions)
STATS_BY_MINUTE = Method[list[MinuteStats]]("stats_by_minute", tuple[int], list[MinuteStats])
HOLDERS = Method[list[HolderInfo]]("holders", tuple[()], list[HolderInfo])
RECORDS = Method[dict[str, dict[str, Versioned]]]("records", tuple[list[str]], dict[str, dict[str, Versioned]])
PUT_RECORD = Method[bool]("put_record", tuple[str, str, bytes | None, int | None], bool, "once")
WARNINGS = Method[list[Finding]]("warnings", tuple[()], list[Finding])
NOW = Method[int]("now", tuple[()], int)

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
"""The calls that a server hands to its store as they are."""

RECALL = "recall"
"""Asks again for the answer to the request that the header names."""
LISTEN = "listen"
"""Opens a stream of hints: a line with its name, then a line of JSON text per topic that rang."""
TOPICS = Method[None]("topics", tuple[Topics], None, "repeats")
