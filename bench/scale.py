"""How much is measured: enough for steady figures, or just enough to see that everything works."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    repeats: int
    singles: int
    """Jobs enqueued one at a time."""
    grouped: int
    """Jobs enqueued by 100 callers, or in bulk."""
    run: int
    """Jobs run by Holdfast and by the raw loop; it takes this many to fill a second or so."""
    run_peers: int
    """Jobs run by the peers."""
    latency: int
    """Jobs enqueued with pauses, to an idle worker."""
    latency_peers: int
    seconds: float
    """Seconds of a rate that is not of a fixed number of jobs."""
    idle: float
    """Seconds over which an idle worker is watched, longer than its rarest repeated work; half of them for a peer."""
    depths: tuple[int, ...]
    depth_rounds: int
    """Rounds of 1,000 jobs claimed and settled at each depth."""
    imports: int
    """Fresh interpreters per repeat; runs of a command."""
    payloads: int
    """Jobs of 1 MB; a quarter of them one by one."""
    flows: int
    """Flows of three jobs."""


FULL = Scale(
    repeats=3,
    singles=4_000,
    grouped=50_000,
    run=50_000,
    run_peers=5_000,
    latency=12,
    latency_peers=6,
    seconds=6.0,
    idle=30.0,
    depths=(1_000, 100_000, 1_000_000),
    depth_rounds=20,
    imports=7,
    payloads=400,
    flows=300,
)
QUICK = Scale(
    repeats=1,
    singles=500,
    grouped=10_000,
    run=10_000,
    run_peers=1_000,
    latency=6,
    latency_peers=3,
    seconds=5.0,
    idle=5.0,
    depths=(1_000, 10_000, 50_000),
    depth_rounds=5,
    imports=3,
    payloads=20,
    flows=50,
)
