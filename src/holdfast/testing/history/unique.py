"""The rule of keys that stand for a job only for a while: until it is claimed, until it has ended, or for some time."""

from __future__ import annotations

from collections.abc import Iterator

from ...core.clock import MICROS
from ...core.job import TERMINAL
from .broken import Broken
from .lives import NEVER, POSSIBLE, Asked, History, Life


def one_job_at_a_time_per_key(history: History) -> Iterator[Broken]:
    """I: while a key certainly stands for one job, no other is made for it."""
    keys: dict[tuple[str, str], list[tuple[Life, Asked]]] = {}
    for life in history.lives.values():
        made = next((one for one in life.inserts if one.entry.unique and one.says == "ok"), None)
        if made is not None and not life.reborn:
            keys.setdefault((made.entry.key, made.entry.unique), []).append((life, made))
    for (key, unique), jobs in keys.items():
        if unique == "window" and not history.terms.store_time:
            continue
        there = sorted(jobs, key=lambda job: job[1].told)
        at, until, holder = 0, -1, ""
        for life, made in sorted(jobs, key=lambda job: job[0].inserts[0].asked):
            while at < len(there) and there[at][1].told < life.inserts[0].asked:
                until, holder = max((until, holder), (_until(unique, *there[at]), there[at][0].id))
                at += 1
            if (made.told_at if unique == "window" else made.told) < until:
                what = f"it was made for key {key!r}, which belonged to {holder} ({unique})"
                yield Broken(one_job_at_a_time_per_key.__name__, life.id, what)


def _until(unique: str, life: Life, made: Asked) -> int:
    """Up to when a job certainly has its key: a place in the journal; for a window, a time."""
    if unique == "window":
        return -1 if life.may_be_gone else life.inserts[0].entry.at + int(made.entry.window * MICROS)
    over = [one for end in life.ends.values() if end.entry.state in TERMINAL for one in end.sent]
    over += [one for one in life.changes if one.entry.what in ("cancel", "delete") or one.entry.state in TERMINAL]
    places = [one.asked for one in over if one.says in POSSIBLE]
    if unique == "until_start":
        places += [claim.asked for claim in life.claims]
        places += life.run.unanswered
    return min(places, default=NEVER)
