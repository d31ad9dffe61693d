"""Where a job's bytes are: in the state, in the log entry that brought them, or in an object of their own.

The state is in every process's memory and in every snapshot, so it holds what is short. What is longer stays where it
was written, and the state says where: a pointer. A value that begins like a pointer is marked as being none.
"""

from __future__ import annotations

from collections.abc import Iterable

INLINE = 256
"""Bytes up to which a payload or a result is kept in the state. Part of the state machine: never a setting."""
BESIDE = 65_536
"""Bytes from which it is an object of its own."""

_PLAIN, _OWN, _LOG = b"\0=", b"\0@", b"\0#"


def own(key: str) -> bytes:
    """A pointer to an object of its own."""
    return _OWN + key.encode()


def plain(value: bytes) -> bytes:
    """A value as it stands in the log."""
    return _PLAIN + value if value.startswith(b"\0") else value


def lean(value: bytes, number: int, batch: int, kind: str, index: int) -> bytes:
    """A value of the log as it stands in the state: itself where it is short, else where to find it."""
    if len(value) <= INLINE or value.startswith(_OWN):
        return value
    return _LOG + f"{number}/{batch}/{kind}/{index}".encode()


def new_key(name: str, size: int) -> str:
    """The key of an object of its own; it says the size, by which a body that was cut short is known."""
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
    """A value as the user gave it, from one that is no pointer."""
    return value[2:] if value.startswith(_PLAIN) else value


def entries(values: Iterable[bytes | None]) -> set[int]:
    """The log entries that these values need."""
    return {place[0] for value in values if (place := log_place(value)) is not None}
