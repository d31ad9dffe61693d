"""The log's format: one JSON object per entry, made of batches of requested operations.

An entry contains requests, never results: each process that applies it computes the results. Operations of one kind are
written as a table: common values once (`like`), and the rest in rows. Bytes that are valid text are written as text.
`docs/bucket-format.md` describes all of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from itertools import groupby, repeat
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec

from ...core.errors import StoreUnavailable
from ...core.job import NewJob, Record
from ...core.operations import Ask, Change, Holder, Note, Settlement
from ..protocol import Batch

VERSION = 5
"""Version of the state machine and of this format. A process that finds a newer one stops, and replays nothing."""

T = TypeVar("T", bound=msgspec.Struct)


class Table(msgspec.Struct, omit_defaults=True):
    """Structs of one kind: the fields with a common value, and the varying fields, row by row."""

    like: dict[str, Any] = {}
    vary: list[str] = []
    rows: list[list[Any]] = []
    text: list[str] = []
    """The bytes fields that are written as text here; others are base64."""


class Watched(msgspec.Struct, frozen=True, omit_defaults=True):
    """`holder` was watched from log position `since` on, for `seconds`, and sent no heartbeat after `heartbeat`."""

    holder: str
    heartbeat: int
    since: int
    seconds: float


class Put(msgspec.Struct, frozen=True, omit_defaults=True):
    """A small shared record; no value removes it."""

    kind: str
    name: str
    value: bytes | None = None
    expect: int | None = None


class Tidy(msgspec.Struct, frozen=True, omit_defaults=True):
    """Remove what has expired, and these holders, if they have sent no heartbeat since.

    `stalled`: limit keys that started no job for `burst` intervals, if their `tat` is still the same.
    """

    limit: int
    gone: list[tuple[str, int]] = []
    stalled: list[tuple[str, int]] = []


class Segment(msgspec.Struct, frozen=True, omit_defaults=True):
    """Ended jobs that were written to `done/` in one object, as they were after entry `as_of`."""

    name: str
    as_of: int
    jobs: list[tuple[int, int]]
    """(seq, fence) of each."""
    first: str
    last: str
    """The lowest and the highest of their ids."""
    expires_at: int | None
    """When the last of them expires; None if one is kept until it is purged."""
    objects: list[str] = []
    """Payload objects that they need."""


class Revived(msgspec.Struct, frozen=True, omit_defaults=True):
    """An ended job, brought back from a segment because this batch changes it or has its id."""

    segment: str
    record: Record
    nonce: int = 0


class Mark(msgspec.Struct, frozen=True):
    """A snapshot of the state after entry `number` was written, with this many bytes."""

    number: int
    size: int


class Spent(msgspec.Struct, omit_defaults=True):
    """Requests to the bucket."""

    gets: int = 0
    puts: int = 0
    lists: int = 0
    deletes: int = 0

    def add(self, other: Spent) -> None:
        self.gets += other.gets
        self.puts += other.puts
        self.lists += other.lists
        self.deletes += other.deletes


class Batched(msgspec.Struct, omit_defaults=True):
    """The requests that one writer wrote together. `writer` and `number` identify it, so that it is applied once."""

    writer: str
    number: int
    base: int
    """The log position up to which the writer knew that it had not been applied."""
    now: int
    """The writer's wall clock."""
    looked: bool = False
    """The writer searched for its jobs in `done/`: refused if any were moved there since `base`."""
    objects: bool = False
    """Objects were written for it outside the log: refused if a snapshot was marked since `base`, because a cleaning
    may then have deleted them as unneeded.
    """
    revives: list[Revived] = []
    inserts: list[Table] = []
    notes: list[Table] = []
    settles: list[Table] = []
    changes: list[Table] = []
    asks: list[Table] = []
    renews: list[str] = []
    """Holders that ask for jobs, and half of whose lease has passed, as the writer has watched."""
    leaves: list[str] = []
    heartbeats: list[Holder] = []
    records: list[Put] = []
    tidies: list[Tidy] = []
    watches: list[Watched] = []
    spent: Spent | None = None
    segments: list[Segment] = []
    marks: list[Mark] = []

    def batch(self) -> Batch:
        """The operations of a store's batch."""
        return Batch(
            unpack(self.inserts, NewJob),
            unpack(self.notes, Note),
            unpack(self.settles, Settlement),
            unpack(self.changes, Change),
            unpack(self.asks, Ask),
        )


class Entry(msgspec.Struct):
    """One commit: the object `log/<number>`."""

    v: int
    nonce: str
    prev: str
    """The nonce of the previous entry."""
    batches: list[Batched]


class Handed(msgspec.Struct):
    """A batch whose writer lost: the object `inbox/<writer>.<number>`, for the next writer."""

    v: int
    batch: Batched


class TooNew(StoreUnavailable):
    """An object was written by a newer version of Holdfast."""


class Damaged(StoreUnavailable):
    """An object is truncated, empty or not in this format. Nothing is read from it."""


class _Versioned(msgspec.Struct):
    v: int


T2 = TypeVar("T2")
_building = threading.Lock()
"""Each store has its own thread, and msgspec crashes if two threads use a type for the first time concurrently."""
_decoders: dict[Any, Callable[[bytes], Any]] = {}
encode = msgspec.json.Encoder().encode


def decode(key: str, data: bytes, kind: type[T2]) -> T2:
    """Decode an object of the log; raises TooNew or Damaged."""
    try:
        version = _decoder(_Versioned)(data).v
        if version > VERSION:
            raise TooNew(
                f"object {key} of the bucket was written by a newer Holdfast (log version {version}; this process"
                f" supports {VERSION}): upgrade Holdfast in this process"
            )
        return _decoder(kind)(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise _damaged(key, data, error) from error


@contextmanager
def unpacking(key: str, data: bytes) -> Generator[None]:
    """Around `unpack`, for the tables of a decoded object: Damaged, with its key, if a table is invalid."""
    try:
        yield
    except (msgspec.MsgspecError, ValueError) as error:
        raise _damaged(key, data, error) from error


def _damaged(key: str, data: bytes, error: Exception) -> Damaged:
    return Damaged(
        f"object {key} of the bucket is damaged ({len(data)} bytes): {error}; nothing was written. Holdfast never"
        " changes an object, so another program changed it: restore it from a backup or an earlier version; its key is"
        " relative to the store's URL"
    )


def _decoder(kind: Any) -> Callable[[bytes], Any]:
    found = _decoders.get(kind)
    if found is None:
        with _building:
            found = _decoders.setdefault(kind, msgspec.json.Decoder(kind).decode)
    return found


def number_of(key: str) -> int:
    """The number at the end of a key."""
    return int(key.rpartition("/")[2])


def log_key(number: int) -> str:
    return f"log/{number:016}"


def inbox_key(batched: Batched) -> str:
    return f"inbox/{batched.writer}.{batched.number}"


def snapshot_key(number: int) -> str:
    return f"snapshot/{number:016}"


# -- tables


def pack(items: Sequence[msgspec.Struct]) -> list[Table]:
    """Structs of one type as tables, in order; one table, unless they differ in which fields are UNSET."""
    if not items:
        return []
    kind = type(items[0])
    if kind is Note:
        return [_table(kind, list(same), unset) for unset, same in groupby(items, _unset)]
    return [_table(kind, items, ())]


def _unset(item: msgspec.Struct) -> tuple[str, ...]:
    return tuple(name for name in item.__struct_fields__ if getattr(item, name) is msgspec.UNSET)


def _table(kind: type[msgspec.Struct], items: Sequence[msgspec.Struct], unset: tuple[str, ...]) -> Table:
    table = Table()
    columns: list[list[Any]] = []
    usual = _defaults(kind)
    for name in kind.__struct_fields__:
        if name in unset:
            continue
        column = [getattr(item, name) for item in items]
        first = column[0]
        alike = all(value == first for value in column)
        if alike and name in usual and usual[name] == first:
            continue
        if name in _bytes_fields(kind):
            text = _as_text(column)
            if text is not None:
                column, first = text, text[0]
                table.text.append(name)
        if alike:
            table.like[name] = first
        else:
            table.vary.append(name)
            columns.append(column)
    table.rows = [list(row) for row in zip(*columns, strict=True)] if columns else [[] for _ in items]
    return table


def unpack(tables: list[Table], kind: type[T]) -> list[T]:
    """The structs of some tables, in order. They share one object for each common value."""
    found: list[T] = []
    for table in tables:
        varying = zip(table.vary, zip(*table.rows, strict=True), strict=True) if table.vary else ()
        columns: dict[str, Iterable[Any]] = {
            name: msgspec.convert(_values(table, name, column), list[hint])
            for name, column in varying
            if (hint := _hints(kind).get(name)) is not None
        }
        for name, hint in _hints(kind).items():
            if name not in columns:
                columns[name] = repeat(_common(table, kind, name, hint), len(table.rows))
        found += map(kind, *(columns[name] for name in kind.__struct_fields__))
    return found


def _values(table: Table, name: str, column: Iterable[Any]) -> list[Any]:
    return (
        [value.encode() if isinstance(value, str) else value for value in column] if name in table.text else [*column]
    )


def _common(table: Table, kind: type[msgspec.Struct], name: str, hint: Any) -> Any:
    if name in table.like:
        [value] = msgspec.convert(_values(table, name, [table.like[name]]), list[hint])
        return value
    if name not in _defaults(kind):
        raise ValueError(f"the field {name} of a {kind.__name__} is missing")
    return _defaults(kind)[name]


def _as_text(column: list[Any]) -> list[Any] | None:
    try:
        return [value if value is None else value.decode() for value in column]
    except UnicodeDecodeError:
        return None


_usual: dict[type, dict[str, Any]] = {}
_binary: dict[type, frozenset[str]] = {}
_types: dict[type, dict[str, Any]] = {}


def _defaults(kind: type[msgspec.Struct]) -> dict[str, Any]:
    if kind not in _usual:
        fields = msgspec.structs.fields(kind)
        _usual[kind] = {f.name: f.default for f in fields if f.default is not msgspec.NODEFAULT} | {
            f.name: f.default_factory() for f in fields if f.default_factory is not msgspec.NODEFAULT
        }
    return _usual[kind]


def _bytes_fields(kind: type[msgspec.Struct]) -> frozenset[str]:
    if kind not in _binary:
        hints = _hints(kind)
        _binary[kind] = frozenset(name for name, hint in hints.items() if hint is bytes or bytes in get_args(hint))
    return _binary[kind]


def _hints(kind: type[msgspec.Struct]) -> dict[str, Any]:
    if kind not in _types:
        hints = get_type_hints(kind)
        for name in kind.__struct_fields__:
            _decoder(list[hints[name]])  # so that no conversion is the first use of the type
        _types[kind] = {name: hints[name] for name in kind.__struct_fields__}
    return _types[kind]
