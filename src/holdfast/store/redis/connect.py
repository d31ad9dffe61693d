"""Connects to the server that has the store's keys: the address, a sentinel's primary, or a cluster node."""

from __future__ import annotations

import ssl

from ...core.errors import StoreUnavailable
from . import tls, trouble
from .address import Address, Node
from .resp import Connection, Lost, ReplyError, dial
from .verdict import ask, log_in, newest

HOPS = 5
"""Redirections of a cluster that are followed one after another."""


async def connect(address: Address, key: str, first: Node | None = None) -> Connection:
    """A connection to the server that has this key: the sentinels' primary, or a cluster node. Tries `first` first."""
    reasons: list[str] = []
    for node in await _candidates(address, first):
        try:
            return await _reach(address, node, key)
        except trouble.SlotMoving:
            raise
        except StoreUnavailable as error:  # its text names the server
            reasons.append(str(error))
        except (OSError, Lost) as error:
            where = address.path or f"{node[0]}:{node[1]}"
            cut = address.path is None and isinstance(error, (Lost, ConnectionResetError, ssl.SSLError))
            hint = await tls.explain(*node, address.tls_context()) if cut else ""
            reasons.append(f"{where}: {error}{hint}")
    raise StoreUnavailable(
        f"no connection to {address}: {'; '.join(reasons)}; nothing was written. Check the URL, and that the server is"
        " running"
    )


async def _candidates(address: Address, first: Node | None) -> list[Node]:
    if address.path is not None:
        return [("", 0)]
    if address.master is not None:
        return [first or newest(await ask(address, address.nodes)).node]
    return [first, *address.nodes] if first is not None else list(address.nodes)


async def _reach(address: Address, node: Node, key: str) -> Connection:
    """A connection to this node, or to the node that it redirects to."""
    secure = address.tls_context()
    for _ in range(HOPS):
        connection = await dial(*node, path=address.path, tls=secure, patience=address.timeout)
        try:
            await log_in(connection, address.username, address.password, str(address))
            if address.db:
                _refuse(await connection.call("SELECT", address.db), address)
            await connection.call("CLIENT", "SETNAME", "holdfast")  # only for CLIENT LIST; may be refused
            if address.master is not None:
                await _be_primary(connection, address, node)
            # A cluster node redirects to the owner of the slot (MOVED); the owner may answer ASK during a migration.
            answer = await connection.call("EXISTS", key)
            moved = moved_to(answer, node)
            if moved is None:
                if not (isinstance(answer, ReplyError) and trouble.code(answer) in trouble.HALF_MOVED):
                    _refuse(answer, address)
                return connection
        except BaseException:
            connection.close()
            raise
        connection.close()
        node = moved
    raise trouble.SlotMoving(
        f"{address}: no node of the cluster has the slot of {key}; nothing was written. Run `redis-cli --cluster check`"
    )


async def _be_primary(connection: Connection, address: Address, node: Node) -> None:
    """The server that the sentinels name may have been replaced since, or not be promoted yet."""
    role = await connection.call("ROLE")
    if isinstance(role, list) and role[0] != b"master":
        raise StoreUnavailable(f"{address}: the sentinels name {node[0]}:{node[1]}, which is a replica; try again")


def _refuse(answer: object, address: Address) -> None:
    if isinstance(answer, ReplyError):
        raise trouble.translate(answer, str(address), watched=address.master is not None)


def moved_to(answer: object, node: Node) -> Node | None:
    """The node that a MOVED error names; None for any other answer."""
    if not isinstance(answer, ReplyError) or trouble.code(answer) != "MOVED":
        return None
    host, _, port = str(answer).split(" ")[2].rpartition(":")
    return host or node[0], int(port)
