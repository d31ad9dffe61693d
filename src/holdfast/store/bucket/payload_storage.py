"""Where payload and result of a job are stored: in the state, in the log entry that wrote them, or in an own object.

The state is in the memory of every process and in every snapshot, so it has only short values. Longer ones stay where
they were written, and the state has a pointer to them. A value that begins like a pointer is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable

INLINE = 256
"""Bytes up to which a payload or a result is kept in the state. Part of the state machine: never a setting."""
BESIDE = 65_536
"""Bytes from which it is a separate object."""

_PLAIN, _OWN, _LOG = b"\0=", b"\0@", b"\0#"


def own(key: str) -> bytes:
    """A pointer to a separate object."""
    return _OWN + key.encode()


def plain(value: bytes) -> bytes:
    """A value as the log contains it."""
    return _PLAIN + value if value.startswith(b"\0") else value


def lean(value: bytes, number: int, batch: int, kind: str, index: int) -> bytes:
    """A value of the log as the state contains it: itself if it is short, else a pointer."""
    if len(value) <= INLINE or value.startswith(_OWN):
        return value
    return _LOG + f"{number}/{batch}/{kind}/{index}".encode()


def new_key(name: str, size: int) -> str:
    """The key of a separate object; it contains the size, which reveals a truncated body."""
    return f"payload/{name}.{size}"


def size_of(key: str) -> int:
    return int(key.rpartition(".")[2])


def own_key(value: bytes | None) -> str | None:
    """The object that a pointer names."""
    return value[2:].decode() if value is not None and value.startswith(_OWN) else None


def log_place(value: bytes | None) -> tuple[int, int, str, int] | None:
    """(entry, batch, kind, index) of a pointer into the log."""
    if value is None or not value.startswith(_LOG):
        return None
    number, batch, kind, index = value[2:].decode().split("/")
    return int(number), int(batch), kind, int(index)


def bare(value: bytes) -> bytes:
    """The value that the user gave, from one that is not a pointer."""
    return value[2:] if value.startswith(_PLAIN) else value


def entries(values: Iterable[bytes | None]) -> set[int]:
    """The log entries that these values need."""
    return {place[0] for value in values if (place := log_place(value)) is not None}
