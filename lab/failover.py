"""`python -m lab failover KIND`: load on a Redis store while its primary is replaced, or its slot moved key by key."""

from __future__ import annotations

import asyncio
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def _is_replica(server: Any) -> bool:
    try:
        return server.call("ROLE")[0] == b"slave"
    except OSError:
        return False  # sentinels end its connections as it becomes one


async def _planned(servers: Any, load: Any) -> None:
    """SENTINEL FAILOVER; the replaced primary lives on, and is a replica some seconds later."""
    before = servers.primary()
    servers.sentinels[0].call("SENTINEL", "FAILOVER", "mymaster")
    await load.until(lambda: servers.primary() is not before and _is_replica(before))


async def _hung(servers: Any, load: Any) -> None:
    """The primary hangs until it is replaced, and then wakes."""
    before = servers.primary()
    before.signal(signal.SIGSTOP)
    await load.until(lambda: servers.primary() is not before)
    before.signal(signal.SIGCONT)
    await load.until(lambda: _is_replica(before))


async def _slot(cluster: Any, load: Any) -> None:
    """The store's slot goes to another node, key by key."""
    source = cluster.owner(load.prefix)
    moving = load.slot_move(cluster, load.prefix, next(node for node in cluster.nodes if node is not source)).begin()
    while await moving.some(1):  # noqa: ASYNC110  # slowly, not until something happens
        await asyncio.sleep(0.02)
    moving.end()


KINDS: dict[str, Callable[[Any, Any], Awaitable[None]]] = {"planned": _planned, "hung": _hung, "slot": _slot}


async def _run(kind: str, options: dict[str, str], times: int, binary: str | None) -> int:
    sys.path.insert(0, str(ROOT / "tests"))
    from support.eventually import eventually
    from support.redis import Cluster, SlotMove, valkey_binary
    from support.redis_load import Load
    from support.redis_sentinels import Sentinels

    binary, folder, bad = binary or valkey_binary(), Path(tempfile.mkdtemp(prefix="holdfast-failover-")), 0
    servers = (Cluster if kind == "slot" else Sentinels)(binary, folder).start()
    try:
        for n in range(times):
            load = Load(servers.url(f"lab{n}", **options))
            load.prefix, load.until, load.slot_move = f"lab{n}", eventually, SlotMove
            async with load:
                await load.more(300)
                await KINDS[kind](servers, load)
                await load.more(300)
            findings = load.findings()
            bad += sum(findings.values())
            print(f"{kind}: {len(load.acknowledged)} acknowledged; {findings}; errors {dict(load.errors)}", flush=True)
    finally:
        servers.remove()
    return bad


def run(kind: str, options: dict[str, str], times: int, binary: str | None = None) -> int:
    """1 where anything was lost or given twice."""
    return min(1, asyncio.run(_run(kind, options, times, binary)))
