"""The names that the Lua files use, and the number or letter that replaces each before a script is sent.

The scripts are readable, and as fast as with numbers and letters.
`e.fence` is the fence of an end, `mutable.state` a letter of a mutable, `STATE.queued` the letter of a state, and
`PROMOTE_LIMIT` a number of the protocol. tests/redis/names.txt has all of them.
"""

from __future__ import annotations

import re
import types
from collections.abc import Iterable
from struct import calcsize
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

import msgspec

from ...core.clock import MICROS
from ...core.damage import DAMAGED_ID
from ...core.histogram import BUCKETS
from ...core.job import HISTORY_LIMIT, TERMINAL, UNTIMED, State
from ...core.limiter import LAG, LOOK_AGAIN, STEP
from ..protocol import COHORT, DEFER_LIMIT, PROMOTE_LIMIT, TRANSITIONS_KEPT
from . import messages as m

LETTER = {
    State.QUEUED.value: "q",
    State.SCHEDULED.value: "w",
    State.FAILED.value: "f",
    State.RUNNING.value: "r",
    State.SUCCEEDED.value: "s",
    State.DEAD.value: "d",
    State.CANCELLED.value: "c",
    State.BLOCKED.value: "b",
}
"""The states that a mutable or a count knows."""
DEFERRED = "h"
"""A job that its limit key defers; shown as blocked."""
UNREADABLE = "D"
"""A job whose mutable the scripts cannot read; shown as blocked."""
DELETED = "x"
"""In transitions: the job was deleted."""
PER_CHUNK = 256
"""Jobs that share a hash."""
GONE_KEPT = 300 * MICROS
"""Microseconds for which the settlement of a job that was deleted at its end is recognised."""
PIECE = ">I8I8I8"
"""The head of a piece of output: position, fence and at, eight bytes each."""
MESSAGE_PACK = {
    "fixmap": 0x80, "fixmap_last": 0x8F, "fixarray": 0x90, "fixstr": 0xA0, "nothing": 0xC0, "bin8": 0xC4, "bin16": 0xC5,
    "uint64": 0xCF, "int16": 0xD1, "str8": 0xD9, "str16": 0xDA, "str32": 0xDB,
}  # fmt: skip
"""The first bytes of the MessagePack values that scripts read and write without a library."""
LETTERS = {f.name: f.encode_name for f in msgspec.structs.fields(m.WholeMutable)}
"""The letters of a mutable by name."""


class Code(str):
    """Lua code; other texts become Lua strings."""

    __slots__ = ()


class _Records(NamedTuple):
    """A kind of table: the variables of the scripts that are such, and the key of each field."""

    variables: tuple[str, ...]
    fields: dict[str, Any]


def _places(kind: type[msgspec.Struct | tuple[Any, ...]]) -> dict[str, int]:
    names: Iterable[str] = getattr(kind, "__struct_fields__", ()) or getattr(kind, "_fields", ())
    return {name: place for place, name in enumerate(names, 1)}


_BODY = _places(m.Body)


def _lua_kind(hint: Any) -> str | None:
    """The Lua type of a field of a mutable; None if any is valid."""
    if isinstance(hint, types.UnionType):
        [hint] = [part for part in get_args(hint) if part is not type(None)]
    known = {int: "number", str: "string", msgspec.Raw: "string", dict: "table", list: "table", bool: None}
    return known[get_origin(hint) or hint]


def _body_places() -> dict[str, int]:
    """Byte offsets, from 1, of the numbers at the start of a body and of its texts."""
    at, found = 2, dict[str, int]()  # behind the head of the array
    for name, size in (("created_at", 8), ("run_at", 8), ("priority", 2)):
        found[name] = at + 1  # behind the head of the number
        at += 1 + size
    return found | {
        "head": at - 1,
        "words": at,
        "before_payload": _BODY["payload"] - 1,
        "limited": _fixarray(len(_BODY)),
    }


def _front() -> dict[str, int]:
    """The start of a running job's mutable: the head of the map, then `due`: a letter, a number of eight bytes."""
    letter = MESSAGE_PACK["fixstr"] + 1
    return {
        "letter": letter,
        "due": ord(LETTERS["due"]),
        "limit_key": ord(LETTERS["limit_key"]),
        "due_number": 5,
        "size": 12,
    }


def _fixarray(size: int) -> int:
    return MESSAGE_PACK["fixarray"] + size


def _table(entries: dict[str, str]) -> Code:
    return Code("{ " + ", ".join(f"[{_lua(key)}] = {value}" for key, value in entries.items()) + " }")


def _lua(value: Any) -> str:
    """A value as Lua."""
    if isinstance(value, (Code, int)):
        return str(value)
    return (
        "'"
        + "".join(c if c.isprintable() and c.isascii() and c not in "'\\" else f"\\{ord(c):03d}" for c in value)
        + "'"
    )


RECORDS = {
    "BATCH": _Records(("batch",), _places(m.BatchMessage)),
    "NEW": _Records(("job",), _places(m.NewMessage)),
    "NOTE": _Records(("noted",), _places(m.NoteMessage)),
    "CHECKPOINT": _Records(("checkpoint",), _places(m.CheckpointMessage)),
    "OUTPUT": _Records(("output",), _places(m.OutputMessage)),
    "END": _Records(("e",), _places(m.EndMessage)),
    "CHANGE": _Records(("wanted",), _places(m.ChangeMessage)),
    "ASK": _Records(("ask",), _places(m.AskMessage)),
    "FIND": _Records(("want",), _places(m.FindMessage)),
    "MUTABLE": _Records(("mutable", "after"), LETTERS),
    "TIME": _Records(("clock",), _places(m.ServerTime)),
    "STORED": _Records(("kept",), _places(m.StoredJob)),
    "HOLDER": _Records(("known_holder",), _places(m.StoredHolder)),
    "WATCH": _Records(("watch",), _places(m.StoredWatch)),
    "SCORED": _Records(("front", "quarantined", "sound", "picked", "earlier", "piece"), _places(m.ScoredMember)),
    "ENTRY": _Records(("entry",), _places(m.StreamEntry)),
    "PICKED": _Records(("hand",), _places(m.PickedJobs)),
    "KNOWN_SET": _Records(("set",), _places(m.KnownSet)),
    "SUMS": _Records(("sums", "before"), _places(m.EndSums)),
    "POSITIONS": _Records(("positions",), _places(m.PositionRange)),
}
"""Tables whose fields have names: `job.queue` in a script is `job[2]`, `mutable.state` is `mutable.s`."""
GROUPS: dict[str, dict[str, Any]] = {
    **{name: records.fields for name, records in RECORDS.items()},
    "ONE": _places(m.OneArguments),
    "RECORD": _places(m.RecordArguments),
    "TIDY": _places(m.TidyArguments),
    "TRANSITIONS": _places(m.TransitionsArguments),
    "PRINTED": _places(m.OutputArguments),
    "ROW": _places(m.JobRow),
    "CLAIM": _places(m.ClaimHead),
    "CLAIMED": _places(m.ClaimedRow),
    "FOUND": _places(m.FoundHead),
    "TRANSITIONS_HEAD": _places(m.TransitionsHead),
    "TRANSITION": {name: 2 * place for name, place in _places(m.TransitionFields).items()},
    "STATE": LETTER | {"deferred": DEFERRED, "unreadable": UNREADABLE, "deleted": DELETED},
    "BODY": _body_places(),
    "FRONT": _front(),
    "MP": MESSAGE_PACK,
    "MP_CHAR": {name: chr(MESSAGE_PACK[name]) for name in ("uint64", "int16", "str8", "str16", "str32")},
    "PACKED": {
        **{name: chr(MESSAGE_PACK["fixstr"] + 1) + LETTERS[name] for name in ("due", "limit_key", "nonce", "result")},
        "body": chr(_fixarray(len(_BODY) - 1)),
        "limited_body": chr(_fixarray(len(_BODY))),
    },
}
"""Names with a dot."""
CONSTANTS: dict[str, Any] = {
    "PROMOTE_LIMIT": PROMOTE_LIMIT,
    "DEFER_LIMIT": DEFER_LIMIT,
    "COHORT": COHORT,
    "TRANSITIONS_KEPT": TRANSITIONS_KEPT,
    "HISTORY_LIMIT": HISTORY_LIMIT,
    "STEP": STEP,
    "LAG": LAG,
    "LOOK_AGAIN": LOOK_AGAIN,
    "MICROS": MICROS,
    "MILLISECOND": MICROS // 1000,
    "MINUTE": 60 * MICROS,
    "BUCKETS": BUCKETS,
    "HOUR": 3600 * MICROS,
    "PER_CHUNK": PER_CHUNK,
    "GONE_KEPT": GONE_KEPT,
    "TOTAL": "t",
    "UNSUCCESSFUL": "unsuccessful",  # the sorted set of jobs that ended unsuccessfully (dead or cancelled), by number
    "ROW_SIZE": len(_places(m.JobRow)),
    "PIECE": PIECE,
    "PIECE_HEAD": calcsize(">QQQ"),
    "DAMAGED_ID": "^" + DAMAGED_ID.replace("-", "%-") + "(%d+)$",
    "TERMINAL_STATES": _table({LETTER[state.value]: "true" for state in sorted(TERMINAL)}),
    "UNTIMED_STATES": _table({LETTER[state.value]: "true" for state in sorted(UNTIMED)}),
    "COUNTED_STATES": _table({LETTER[state.value]: "true" for state in sorted({State.RUNNING} | UNTIMED | TERMINAL)}),
    "KNOWN_STATES": _table(dict.fromkeys(LETTER.values(), "true")),
    "MUTABLE_KINDS": _table(
        {
            LETTERS[name]: f"'{kind}'"
            for name, hint in get_type_hints(m.WholeMutable).items()
            if (kind := _lua_kind(hint)) is not None
        }
    ),
}
"""Names without a dot."""

_OF = {variable: records for records in RECORDS.values() for variable in records.variables}
_TOKEN = re.compile(
    r"--[^\n]*|'(?:\\.|[^'\\\n])*'"  # comments and strings stay as they are
    r"|\b([A-Z][A-Z_]*)\.([a-z]\w*)"
    rf"|\b({'|'.join(_OF)})\.([a-zA-Z]\w*)"
    r"|\b[A-Z][A-Z_]+\b"
)


def _replaced(found: re.Match[str]) -> str:
    group, name, variable, part = found.groups()
    if group is not None:
        return _lua(GROUPS[group][name])
    if variable is not None:
        key = _OF[variable].fields[part]
        return f"{variable}[{key}]" if isinstance(key, int) else f"{variable}.{key}"
    return _lua(CONSTANTS[found[0]]) if found[0] in CONSTANTS else found[0]


def rendered(text: str) -> str:
    """A Lua file with its names replaced. An unknown field is a KeyError."""
    return _TOKEN.sub(_replaced, text)


def listing() -> str:
    """All names and their values, one per line."""
    dotted = {f"{group}.{name}": value for group, names in GROUPS.items() for name, value in names.items()}
    return "".join(f"{name} = {_lua(value)}\n" for name, value in (CONSTANTS | dotted).items())
