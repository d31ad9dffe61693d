"""The rules of limit keys, over all claims of a history."""

from __future__ import annotations

from collections.abc import Iterator

from .job_history import NEVER, POSSIBLE, Claim, History, JobHistory
from .violation import Violation


def no_limit_key_runs_more_than_it_may(history: History) -> Iterator[Violation]:
    """At any time, the certain claims of a limit key are no more than its concurrency.

    A claim is certain from the answer to its holder until the first request to end it.
    """
    if not history.terms.all_recorded:
        return
    steps: dict[str, list[tuple[int, int, Claim]]] = {}
    for job in history.jobs.values():
        for claim in job.claims:
            if claim.entry.room:
                until = _until(job, claim)
                steps.setdefault(claim.entry.limit_key, []).extend([(claim.answered, 1, claim), (until, -1, claim)])
    for limit_key, changes in steps.items():
        held = 0
        for _, change, claim in sorted(changes, key=lambda one: one[:2]):
            held += change
            if held > claim.entry.room:
                what = f"{held} jobs of limit key {limit_key!r} ran at once; the limit is {claim.entry.room}"
                yield Violation(no_limit_key_runs_more_than_it_may.__name__, claim.entry.job, what)
                break


def no_limit_key_starts_more_often_than_it_may(history: History) -> Iterator[Violation]:
    """In any period, no more jobs of a limit key start than its burst plus the rate times the period."""
    if not history.terms.store_time:
        return
    starts: dict[str, list[Claim]] = {}
    for job in history.jobs.values():
        for claim in job.claims:
            if claim.entry.interval:
                starts.setdefault(claim.entry.limit_key, []).append(claim)
    for limit_key, claims in starts.items():
        arrival = 0  # theoretical arrival time of the next start (as in GCRA)
        for claim in sorted(claims, key=lambda one: one.entry.started_at):
            entry = claim.entry
            if arrival - entry.started_at > (entry.burst - 1) * entry.interval:
                what = f"it started {arrival - entry.started_at} µs too early for limit key {limit_key!r}"
                yield Violation(no_limit_key_starts_more_often_than_it_may.__name__, entry.job, what)
                break
            arrival = max(arrival, entry.started_at) + entry.interval


def _until(job: JobHistory, claim: Claim) -> int:
    fence = claim.entry.fence
    ends = (end for end in job.ends.values() if end.entry.fence == fence)
    return min((one.asked for end in ends for one in end.sent if one.says in POSSIBLE), default=NEVER)
