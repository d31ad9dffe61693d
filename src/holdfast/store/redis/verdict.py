"""Queries sentinels for the primary and its replicas."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from ...core.errors import ConfigError, StoreUnavailable
from .address import Address, Node
from .resp import Connection, Lost, ReplyError, dial

log = logging.getLogger("holdfast")
GRACE = 0.5
"""Seconds that the other sentinels have to answer after the first one."""


class Verdict(msgspec.Struct, frozen=True):
    """The answer of one sentinel about the primary."""

    epoch: int
    """Raised by every failover, and the same for all sentinels that know of it."""
    node: Node
    failing_over: bool
    """A failover is in progress, and the sentinel has not seen its end yet."""
    replicas: int
    """Replicas that a write must reach, so that any promoted one has it."""
    sentinels: tuple[tuple[str, Node], ...]
    """The other sentinels, each with its id."""


class Talk:
    """A connection to one sentinel, as an async context manager."""

    def __init__(self, address: Address, node: Node, connections: set[Connection] | None = None) -> None:
        self._address, self._node = address, node
        self._connections: set[Connection] = set() if connections is None else connections
        self._connection: Connection | None = None

    async def __aenter__(self) -> Connection:
        address = self._address
        connection = await dial(*self._node, tls=address.tls_context(), patience=address.timeout)
        try:
            await log_in(
                connection, address.sentinel_username, address.sentinel_password, f"sentinel {node_text(self._node)}"
            )
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        self._connections.add(connection)
        return connection

    async def __aexit__(self, *exc: object) -> None:
        if self._connection is not None:
            self._connections.discard(self._connection)
            self._connection.close()


async def log_in(connection: Connection, username: str | None, password: str | None, where: str) -> None:
    if password is None:
        return
    answer = await connection.call("AUTH", *([username] if username else []), password)
    if isinstance(answer, ReplyError):
        if "without any password configured" in str(answer):
            log.warning(
                "%s has no password configured, so the password of the URL is not used: set a password on the server,"
                " or remove it from the URL",
                where,
            )
            return
        word = str(answer).partition(" ")[0]
        raise ConfigError(f"{where}: the server rejects the user name or password of the URL ({word}): correct the URL")


async def ask(address: Address, nodes: Sequence[Node]) -> dict[Node, Verdict]:
    """The sentinels' answers; after the first, the others have GRACE seconds. StoreUnavailable if none answers."""

    async def one(node: Node) -> Verdict:
        async with Talk(address, node) as connection:
            return await question(connection, address, node)

    tasks = {asyncio.create_task(one(node)): node for node in nodes}
    verdicts: dict[Node, Verdict] = {}
    reasons: list[str] = []
    refused: ConfigError | None = None
    pending: set[asyncio.Task[Verdict]] = set(tasks)
    try:
        while pending:
            done, pending = await asyncio.wait(
                pending, timeout=GRACE if verdicts else None, return_when=asyncio.FIRST_COMPLETED
            )
            if not done:
                break
            for task in done:
                error = task.exception()
                if error is None:
                    verdicts[tasks[task]] = task.result()
                elif isinstance(error, ConfigError):
                    refused = error
                elif isinstance(error, (OSError, Lost, StoreUnavailable)):
                    where = "" if isinstance(error, StoreUnavailable) else f"sentinel {node_text(tasks[task])}: "
                    reasons.append(f"{where}{error}")
                else:
                    raise error
    finally:
        for task in pending:
            task.cancel()
        if pending:
            await asyncio.wait(pending)
    if not verdicts:
        raise refused or StoreUnavailable(
            f"no connection to {address}: {'; '.join(reasons)}; nothing was written. Check the URL, and that the"
            " sentinels are running"
        )
    return verdicts


def newest(verdicts: dict[Node, Verdict]) -> Verdict:
    return max(verdicts.values(), key=lambda verdict: verdict.epoch)


async def question(connection: Connection, address: Address, node: Node) -> Verdict:
    name = address.master or ""
    calls = [connection.call("SENTINEL", word, name) for word in ("MASTER", "GET-MASTER-ADDR-BY-NAME", "SENTINELS")]
    if address.durability == "replicated":
        calls.append(connection.call("SENTINEL", "REPLICAS", name))
    master, place, others, *replicas = await asyncio.gather(*calls)
    if isinstance(master, ReplyError) or isinstance(place, ReplyError) or not place:
        raise StoreUnavailable(f"sentinel {node_text(node)} does not monitor a primary named {name!r}: check the URL")
    said = _fields(master)
    met, follow = _rows(others), _rows(replicas[0]) if replicas else []
    primary = (place[0].decode(), int(place[1]))
    return Verdict(
        epoch=int(said.get("config-epoch", "0")),
        node=primary,
        failing_over="failover_in_progress" in said.get("flags", "") and _node(said) == primary,
        replicas=sum(_may_be_promoted(one) and _node(one) != primary for one in follow),
        sentinels=tuple((one["runid"], _node(one)) for one in met if one.get("runid")),
    )


def _may_be_promoted(replica: dict[str, str]) -> bool:
    """Whether a replica is up and follows a primary; a primary that was just replaced does not follow one yet.

    A replica that was just promoted still counts, so that the replaced primary finds one replica too few.
    """
    flags = replica.get("flags", "").split(",")
    return "s_down" not in flags and "o_down" not in flags and replica.get("master-host", "?") != "?"


def _rows(answer: Any) -> list[dict[str, str]]:
    return [_fields(row) for row in cast("list[list[bytes]]", answer)] if isinstance(answer, list) else []


def _node(said: dict[str, str]) -> Node:
    return said.get("ip", ""), int(said.get("port", "0"))


def _fields(flat: list[bytes]) -> dict[str, str]:
    words = [word.decode(errors="replace") for word in flat]
    return dict(zip(words[::2], words[1::2], strict=False))


def node_text(node: Node | None) -> str:
    return "unknown" if node is None else f"{node[0]}:{node[1]}"
