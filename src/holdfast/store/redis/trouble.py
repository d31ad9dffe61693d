"""What a server's errors mean to a caller: did the write happen, and what is there to do."""

from __future__ import annotations

from ...core.errors import ConfigError, HoldfastError, StoreRefused, StoreUnavailable

_SLOT = (
    "the store's slot is moving to another node key by key; nothing was written. Jobs are taken again when the move has"
    " ended: finish it, or have `redis-cli --cluster fix` do so"
)
_MEANING = {
    "OOM": "it is full (maxmemory) and takes no new jobs; nothing was written. Raise maxmemory, or let jobs finish",
    "READONLY": "it is a read-only replica; nothing was written. Name the primary, or use redis+sentinel://",
    "LOADING": "it is still loading its data after a start; nothing was written",
    "BUSY": "a script of somebody else keeps it busy; nothing was written",
    "MASTERDOWN": "it is a replica that has lost its primary; nothing was written",
    "MISCONF": "it cannot save to its disk and refuses writes; nothing was written. Look at its log",
    "NOREPLICAS": "too few replicas are connected (min-replicas-to-write); nothing was written",
    "CLUSTERDOWN": "the cluster is down or a slot has no node; nothing was written",
    "ASK": _SLOT,
    "TRYAGAIN": _SLOT,
    "UNBLOCKED": "its role has changed",
}
_CONFIG = {
    "NOAUTH": "it wants a password: redis://user:password@host",
    "WRONGPASS": "it refuses the user name or password of the URL",
    "NOPERM": "the user of the URL may not do this (ACL)",
    "NOPROTO": "it does not speak this protocol",
}
MOVING = frozenset({"READONLY", "MASTERDOWN", "CLUSTERDOWN", "UNBLOCKED", "NOREPLICAS"})
"""Errors after which another connection may find a better server."""
HALF_MOVED = frozenset({"ASK", "TRYAGAIN"})
"""Errors of a cluster's node that has a slot which is moving to another one, key by key."""


class SlotMoving(StoreUnavailable):
    """The store's slot is between two nodes of a cluster, for now."""


class OutOfMemory(StoreUnavailable):
    """The server is full, and takes no new jobs."""


class Full(HoldfastError):
    """A mixed batch met a full server: its parts may fare better one by one."""

    retry_safe = True


def code(error: Exception) -> str:
    """The first word of a server's error."""
    return str(error).partition(" ")[0].rstrip(":")


def translate(error: Exception, where: str, *, watched: bool) -> HoldfastError:
    """The Holdfast error for an error that the server answered with; nothing was written then.

    `watched`: sentinels name another server in place of a replica, so that it is worth waiting.
    """
    word = code(error)
    if word in _CONFIG:
        return ConfigError(f"{where}: {_CONFIG[word]} ({error})")
    if "unknown command" in str(error).lower():
        return ConfigError(f"{where}: it lacks a command that Holdfast needs ({error}); Redis 7.0 or newer, or Valkey")
    kind = StoreRefused if word == "READONLY" and not watched else OutOfMemory if word == "OOM" else StoreUnavailable
    return kind(f"{where}: {_MEANING.get(word, 'it refused')} ({error})")
