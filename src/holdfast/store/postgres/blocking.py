"""The insert of one plain job in the protocol of Postgres, for blocking callers: Bind, Execute and Sync."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from struct import Struct
from typing import Any

from ..blocking import NoAnswer, Rejected, taken_from
from . import sql
from .address import Address
from .pool import connect

_INT16, _INT32, _HEAD = Struct("!h"), Struct("!i"), Struct("!ci")
_NAME = b"holdfast_insert_one"
_NULL = _INT32.pack(-1)
_EXECUTE_SYNC = b"E" + _INT32.pack(9) + b"\0" + _INT32.pack(0) + b"S" + _INT32.pack(4)


async def connect_blocking(address: Address, statement: str) -> socket.socket:
    """A new connection on which the statement is prepared for `insert_request`."""
    raw = await connect(address, sql.READ_COMMITTED)
    try:
        await raw.execute(f"PREPARE {_NAME.decode()} AS {statement}")
    except BaseException:
        raw.terminate()
        raise
    sock = taken_from(raw._transport)  # noqa: SLF001  # the driver has no public way to it
    raw._transport.abort()  # noqa: SLF001
    raw._aborted = True  # noqa: SLF001  # else it warns when it is collected; its `terminate` would tell the server
    return sock


def is_plain(raw: Any) -> bool:
    """Whether the socket of a connection can be used without the driver: it has no TLS."""
    transport = getattr(raw, "_transport", None)
    return transport is not None and transport.get_extra_info("ssl_object") is None


def insert_request(values: Sequence[Any]) -> bytes:
    """The messages that run the prepared statement. Bytes are sent as they are, other values as text."""
    formats = b"".join(b"\0\1" if isinstance(value, bytes) else b"\0\0" for value in values)
    parts = [b"\0", _NAME, b"\0", _INT16.pack(len(values)), formats, _INT16.pack(len(values))]
    for value in values:
        if value is None:
            parts.append(_NULL)
        else:
            data = value if isinstance(value, bytes) else str(value).encode()
            parts += (_INT32.pack(len(data)), data)
    parts.append(b"\0\0")  # the answer as text
    body = b"".join(parts)
    return b"B" + _INT32.pack(len(body) + 4) + body + _EXECUTE_SYNC


class AnswerReader:
    """Reads the messages of one answer, up to ReadyForQuery: only then the server has committed."""

    def __init__(self) -> None:
        self._buffer = b""
        self._rejected = False
        self._value: str | None = None

    def read(self, data: bytes) -> tuple[str | None] | None:
        """The value of the statement in a tuple, once it is committed; Rejected if the server rolled it back."""
        self._buffer += data
        at = 0
        while len(self._buffer) - at >= _HEAD.size:
            kind, size = _HEAD.unpack_from(self._buffer, at)
            if size < _INT32.size:
                raise NoAnswer("the answer is not in the protocol of Postgres")
            end = at + 1 + size
            if len(self._buffer) < end:
                break
            if kind == b"Z":
                if self._rejected:
                    raise Rejected
                return (self._value,)
            if kind == b"E":
                self._rejected = True
            elif kind == b"D":
                length = _INT32.unpack_from(self._buffer, at + 7)[0]
                self._value = None if length < 0 else self._buffer[at + 11 : at + 11 + length].decode()
            at = end
        self._buffer = self._buffer[at:]
        return None
