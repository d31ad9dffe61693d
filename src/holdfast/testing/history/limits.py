"""The rules of limit keys: what a limit promises, over all claims of a history."""

from __future__ import annotations

from collections.abc import Iterator

from .broken import Broken
from .lives import NEVER, POSSIBLE, Claim, History, Life


def no_limit_key_runs_more_than_it_may(history: History) -> Iterator[Broken]:
    """Claims of a limit key that are certainly held at one time are no more than its limit.

    A claim is held at the latest when its holder is told, and at least until somebody asks to end it.
    """
    if not history.terms.everybody:
        return
    steps: dict[str, list[tuple[int, int, Claim]]] = {}
    for life in history.lives.values():
        for claim in life.claims:
            if claim.entry.room:
                until = _until(life, claim)
                steps.setdefault(claim.entry.limit_key, []).extend([(claim.told, 1, claim), (until, -1, claim)])
    for limit_key, changes in steps.items():
        held = 0
        for _, change, claim in sorted(changes, key=lambda one: one[:2]):
            held += change
            if held > claim.entry.room:
                what = f"{held} jobs of limit key {limit_key!r} ran at once; the limit is {claim.entry.room}"
                yield Broken(no_limit_key_runs_more_than_it_may.__name__, claim.entry.job, what)
                break


def no_limit_key_starts_more_often_than_it_may(history: History) -> Iterator[Broken]:
    """In any span of time, no more jobs of a limit key start than its burst and what its rate adds in that time."""
    if not history.terms.store_time:
        return
    starts: dict[str, list[Claim]] = {}
    for life in history.lives.values():
        for claim in life.claims:
            if claim.entry.interval:
                starts.setdefault(claim.entry.limit_key, []).append(claim)
    for limit_key, claims in starts.items():
        arrival = 0  # the theoretical one of the next start, where none is early
        for claim in sorted(claims, key=lambda one: one.entry.started_at):
            entry = claim.entry
            if arrival - entry.started_at > (entry.burst - 1) * entry.interval:
                what = f"it started {arrival - entry.started_at} µs too early for limit key {limit_key!r}"
                yield Broken(no_limit_key_starts_more_often_than_it_may.__name__, entry.job, what)
                break
            arrival = max(arrival, entry.started_at) + entry.interval


def _until(life: Life, claim: Claim) -> int:
    fence = claim.entry.fence
    ends = (end for end in life.ends.values() if end.entry.fence == fence)
    return min((one.asked for end in ends for one in end.sent if one.says in POSSIBLE), default=NEVER)
