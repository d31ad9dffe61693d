"""The rule of unique jobs: one job per key until it starts, until it ends, or for some seconds."""

from __future__ import annotations

from collections.abc import Iterator

from ...core.clock import MICROS
from ...core.job import TERMINAL
from .job_history import NEVER, POSSIBLE, Asked, History, JobHistory
from .violation import Violation


def one_job_at_a_time_per_key(history: History) -> Iterator[Violation]:
    """I: while a job certainly has a key, no other job is created for the key."""
    keys: dict[tuple[str, str], list[tuple[JobHistory, Asked]]] = {}
    for job in history.jobs.values():
        made = next((one for one in job.inserts if one.entry.unique and one.says == "ok"), None)
        if made is not None and not job.recreated:
            keys.setdefault((made.entry.key, made.entry.unique), []).append((job, made))
    for (key, unique), jobs in keys.items():
        if unique == "window" and not history.terms.store_time:
            continue
        there = sorted(jobs, key=lambda one: one[1].answered)
        at, until, holder = 0, -1, ""
        for job, made in sorted(jobs, key=lambda one: one[0].inserts[0].asked):
            while at < len(there) and there[at][1].answered < job.inserts[0].asked:
                until, holder = max((until, holder), (_until(unique, *there[at]), there[at][0].id))
                at += 1
            if (made.answered_at if unique == "window" else made.answered) < until:
                what = f"it was made for key {key!r}, which belonged to {holder} ({unique})"
                yield Violation(one_job_at_a_time_per_key.__name__, job.id, what)


def _until(unique: str, job: JobHistory, made: Asked) -> int:
    """Until when a job certainly has its key: a place in the journal; for a window, a time."""
    if unique == "window":
        return -1 if job.may_be_gone else job.inserts[0].entry.at + int(made.entry.window * MICROS)
    over = [one for end in job.ends.values() if end.entry.state in TERMINAL for one in end.sent]
    over += [one for one in job.changes if one.entry.what in ("cancel", "delete") or one.entry.state in TERMINAL]
    places = [one.asked for one in over if one.says in POSSIBLE]
    if unique == "until_start":
        places += [claim.asked for claim in job.claims]
        places += job.run.unanswered
    return min(places, default=NEVER)
