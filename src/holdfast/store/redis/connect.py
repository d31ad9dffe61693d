"""Connecting: from an address to a wire to the one server that has the store's keys."""

from __future__ import annotations

import logging
import ssl

from ...errors import ConfigError, HoldfastError, StoreUnavailable
from . import tls, trouble
from .address import Address, Node
from .wire import Lost, ReplyError, Wire, dial

log = logging.getLogger("holdfast")
HOPS = 5
"""Redirections of a cluster that are followed one after another."""


async def connect(address: Address, key: str, first: Node | None = None) -> Wire:
    """A wire to the server that has this key: the sentinels' primary, or the cluster's node. `first` is tried first."""
    reasons: list[str] = []
    for node in await _candidates(address, first, reasons):
        try:
            return await reach(address, node, key)
        except StoreUnavailable as error:  # says where by itself
            reasons.append(str(error))
        except (OSError, Lost) as error:
            where = address.path or f"{node[0]}:{node[1]}"
            cut = address.path is None and isinstance(error, (Lost, ConnectionResetError, ssl.SSLError))
            hint = await tls.explain(*node, address.tls_context()) if cut else ""
            reasons.append(f"{where}: {error}{hint}")
    raise StoreUnavailable(f"no connection to {address}: {'; '.join(reasons)}")


async def _candidates(address: Address, first: Node | None, reasons: list[str]) -> list[Node]:
    if address.path is not None:
        return [("", 0)]
    nodes = list(address.nodes) if address.master is None else await _primaries(address, reasons)
    return [first, *nodes] if first is not None else nodes


async def _primaries(address: Address, reasons: list[str]) -> list[Node]:
    """What the first sentinel that answers says of the primary."""
    for host, port in address.nodes:
        try:
            wire = await dial(host, port, tls=address.tls_context(), patience=address.timeout)
            try:
                await _log_in(wire, address.sentinel_username, address.sentinel_password, f"sentinel {host}:{port}")
                said = await wire.call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", address.master or "")
            finally:
                wire.close()
        except (OSError, Lost, StoreUnavailable) as error:
            reasons.append(f"sentinel {host}:{port}: {error}")
            continue
        if isinstance(said, ReplyError) or not said:
            reasons.append(f"sentinel {host}:{port} knows no {address.master}")
            continue
        return [(said[0].decode(), int(said[1]))]
    return []


async def reach(address: Address, node: Node, key: str | None) -> Wire:
    """A wire to this node, or to where it says that the key is; with no key, to this node whatever it has."""
    secure = address.tls_context()
    for _ in range(HOPS):
        wire = await dial(*node, path=address.path, tls=secure, patience=address.timeout)
        try:
            await _log_in(wire, address.username, address.password, str(address))
            if address.db:
                _refuse(await wire.call("SELECT", address.db), address)
            await wire.call("CLIENT", "SETNAME", "holdfast")  # only to be seen in CLIENT LIST; may be refused
            # A cluster's node says who has the key; any other server answers.
            answer = None if key is None else await wire.call("EXISTS", key)
        except BaseException:
            wire.close()
            raise
        moved = moved_to(answer, node)
        if moved is None:
            try:
                _refuse(answer, address)
            except HoldfastError:
                wire.close()
                raise
            return wire
        wire.close()
        node = moved
    raise StoreUnavailable(f"{address}: the cluster sends its callers in circles")


async def _log_in(wire: Wire, username: str | None, password: str | None, where: str) -> None:
    if password is None:
        return
    answer = await wire.call("AUTH", *([username] if username else []), password)
    if isinstance(answer, ReplyError):
        if "without any password configured" in str(answer):
            log.warning("%s has no password configured; the one of the URL is not used", where)
            return
        raise ConfigError(f"{where}: it refuses the user name or password of the URL ({trouble.code(answer)})")


def _refuse(answer: object, address: Address) -> None:
    if isinstance(answer, ReplyError):
        raise trouble.translate(answer, str(address))


def moved_to(answer: object, node: Node) -> Node | None:
    """Where a cluster's node says that the key is; None where it has it itself."""
    if not isinstance(answer, ReplyError) or trouble.code(answer) not in ("MOVED", "ASK"):
        return None
    host, _, port = str(answer).split(" ")[2].rpartition(":")
    return host or node[0], int(port)
