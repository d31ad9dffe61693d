"""Translates errors of a Redis server: whether the write happened, and what to do."""

from __future__ import annotations

from ...core.errors import ConfigError, HoldfastError, OutcomeUnknown, StoreRefused, StoreUnavailable

_SLOT = (
    "the store's slot is being migrated to another node; nothing was written. Writes work again after the migration:"
    " finish it, or run `redis-cli --cluster fix`"
)
_MEANING = {
    "OOM": "the memory of the server is full (maxmemory); nothing was written. Raise maxmemory, or let jobs finish",
    "READONLY": "the server is a read-only replica; nothing was written. Use the primary, or redis+sentinel://",
    "LOADING": "the server is still loading its data; nothing was written. Try again",
    "BUSY": "a script of another client blocks the server; nothing was written. Try again, or run SCRIPT KILL",
    "MASTERDOWN": "the server is a replica that has lost its primary; nothing was written. Use the primary",
    "MISCONF": "the server cannot save to its disk and rejects writes; nothing was written. Check its disk and its log",
    "NOREPLICAS": "too few replicas are connected (min-replicas-to-write); nothing was written. Check the replicas",
    "CLUSTERDOWN": "the cluster is down or a slot has no node; nothing was written. Check the nodes of the cluster",
    "ASK": _SLOT,
    "TRYAGAIN": _SLOT,
    "UNBLOCKED": "the role of the server changed; nothing was written. Try again",
}
_UNEXPECTED = "the server returned an unexpected error; check the log of the server"
_CONFIG = {
    "NOAUTH": "the server requires a password: write redis://USER:PASSWORD@HOST",
    "WRONGPASS": "the server rejects the user name or password of the URL: correct the URL",
    "NOPERM": "the user of the URL lacks a permission: grant it with ACL SETUSER",
    "NOPROTO": "the server does not support the protocol version of Holdfast: use Redis 7.0+ or Valkey",
}
MOVING = frozenset({"READONLY", "MASTERDOWN", "CLUSTERDOWN", "UNBLOCKED", "NOREPLICAS"})
"""Errors after which another connection may find the right server."""
HALF_MOVED = frozenset({"ASK", "TRYAGAIN"})
"""Errors of a cluster node whose slot is being migrated to another one."""


class SlotMoving(StoreUnavailable):
    """The store's slot is being migrated between two nodes of a cluster."""


class OutOfMemory(StoreUnavailable):
    """The server is full (maxmemory) and accepts no new jobs."""


class Full(HoldfastError):
    """The server was full for a mixed batch: parts without new jobs may still be written separately."""

    retry_safe = True


def code(error: Exception) -> str:
    """The first word of a server's error."""
    return str(error).partition(" ")[0].rstrip(":")


def unknown(where: object, error: Exception) -> OutcomeUnknown:
    """The error for a write that was sent and not answered."""
    return OutcomeUnknown(f"{where}: {error}; the write may have happened: check the store before you repeat the call")


def translate(error: Exception, where: str, *, watched: bool) -> HoldfastError:
    """The Holdfast error for an error reply of the server; nothing was written then.

    `watched`: sentinels will name another server instead of a replica, so that waiting helps.
    """
    word = code(error)
    if word in _CONFIG:
        return ConfigError(f"{where}: {_CONFIG[word]} ({error})")
    if "unknown command" in str(error).lower():
        return ConfigError(
            f"{where}: the server lacks a command that Holdfast needs ({error}); use Redis 7.0+ or Valkey"
        )
    kind = StoreRefused if word == "READONLY" and not watched else OutOfMemory if word == "OOM" else StoreUnavailable
    return kind(f"{where}: {_MEANING.get(word, _UNEXPECTED)} ({error})")
