"""Checks of a bucket, above all whether it supports conditional writes (put-if-absent)."""

from __future__ import annotations

import asyncio

from ...core.clock import MICROS, Clock, Entropy
from ...core.errors import ConfigError, HoldfastError, StoreUnavailable
from ..free_space import free_space
from ..protocol import Finding
from .folder import Folder
from .log_format import Entry, decode, number_of
from .replica import Snapshot
from .requests import Counted

WRITERS, RACES = 8, 5
"""Writers of one race for a new object, and races: a bucket without conditional writes fails at least one of them."""
SKEW = 300.0
"""Seconds by which a machine's clock may differ from the bucket's."""


async def find_race_fault(bucket: Counted, entropy: Entropy, races: int) -> str | None:
    """Why this bucket cannot be used, found by racing for new objects; None if it can."""
    for race in range(races):
        key = f"probe/{entropy.token():016x}"
        bodies = [f"{race}/{n}".encode() for n in range(WRITERS)]
        try:
            won = await asyncio.gather(*(bucket.put_if_absent(key, body) for body in bodies), return_exceptions=True)
            again = await bucket.put_if_absent(key, b"again")
            kept = await bucket.get(key)
        finally:
            await bucket.delete([key])
        winners = [body for body, created in zip(bodies, won, strict=True) if created is True]
        if len(winners) + again > 1:
            return f"{len(winners) + again} writers got the answer that they created the same object"
        if winners and kept != winners[0]:
            return "an object contains the data of a writer that did not create it"
    return None


async def check_conditional_writes(bucket: Counted, entropy: Entropy) -> None:
    """Before a log is created: refuse a bucket without working conditional writes."""
    try:
        reason = await find_race_fault(bucket, entropy, 1)
    except HoldfastError:
        raise
    except Exception as error:
        said = f"{bucket} cannot be written to: {type(error).__name__}: {error}"
        raise StoreUnavailable(f"{said}; {_advice(bucket)}") from error
    if reason is not None:
        raise ConfigError(
            f"{bucket} does not support conditional writes: {reason}. Jobs would be lost; use a bucket whose server"
            " supports If-None-Match"
        )


async def examine(bucket: Counted, entropy: Entropy, clock: Clock) -> list[Finding]:
    """Run all checks. Writes and removes a few small objects below `probe/`."""
    try:
        reason = await find_race_fault(bucket, entropy, RACES)
    except HoldfastError as error:
        return [Finding(False, f"{bucket} cannot be used: {error}", _advice(bucket)), *_space(bucket)]
    except Exception as error:  # noqa: BLE001  # drivers raise errors of any type
        said = f"{bucket} cannot be written to: {type(error).__name__}: {error}"
        return [Finding(False, said, _advice(bucket)), *_space(bucket)]
    races = f"in {RACES} races, {WRITERS} writers tried to create the same object: "
    advice = "use a bucket whose server supports conditional writes (If-None-Match)"
    findings = [Finding(reason is None, races + (reason or "one succeeded each time"), advice)]
    findings += _space(bucket)
    findings += await _log(bucket)
    key = f"probe/{entropy.token():016x}"
    await bucket.put_surely(key, b"")
    made = [each.modified for each in await bucket.list("probe/") if each.key == key]
    await bucket.delete([key])
    off = abs(made[0] - clock.now()) / MICROS if made else 0.0
    said = f"the clocks of the bucket and of this machine differ by {off:.0f} s"
    findings.append(Finding(off < SKEW, said, "correct the clock of this machine: Holdfast uses it for due times"))
    return findings


def _advice(bucket: Counted) -> str:
    if isinstance(bucket.inner, Folder):
        return "free disk space, or give this user write permission, depending on the error"
    return "check the URL, the credentials (also for writing and deleting) and the network"


def _space(bucket: Counted) -> list[Finding]:
    return [free_space(bucket.inner.path)] if isinstance(bucket.inner, Folder) else []


async def _log(bucket: Counted) -> list[Finding]:
    snapshots, log = await bucket.list("snapshot/"), await bucket.list("log/")
    if not log and not snapshots:
        return [Finding(True, "the bucket has no log yet: the first enqueue or worker creates it")]
    rule = "restore the missing objects of log/, and remove lifecycle rules that delete objects of the store"
    numbers = [number_of(each.key) for each in log]
    newest = number_of(snapshots[-1].key) if snapshots else 0
    behind = [number for number in numbers if number > newest]
    gap = behind != list(range(newest + 1, newest + 1 + len(behind)))
    size = sum(each.size for each in log)
    said = f"the log has {len(log)} entries ({size / 1e6:.1f} MB), {len(behind)} of them since the last snapshot"
    findings = [Finding(not gap, said + (", and entries are missing" if gap else ""), rule)]
    for listed in (*snapshots[-1:], *log[-1:]):
        data = await bucket.get(listed.key)
        if data is not None:
            try:
                decode(listed.key, data, Entry if listed.key.startswith("log/") else Snapshot)
            except HoldfastError as error:
                findings.append(Finding(False, str(error)))
    return findings
