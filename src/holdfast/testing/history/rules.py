"""The rules that every history must keep: the promises of `docs/explain/promises.md`, about one job or about all.

An unanswered operation may or may not have been done; a rule reports only what contradicts both.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from itertools import pairwise

from ...core.clock import MICROS
from ...core.job import TERMINAL, State
from ...flows.creation import TASK as FLOW
from .flows import never_begun, nothing_runs_before_its_parents
from .job_history import NEVER, POSSIBLE, Claim, History, JobHistory, ended
from .journal import Entry
from .limits import no_limit_key_runs_more_than_it_may, no_limit_key_starts_more_often_than_it_may
from .streams import a_stream_is_what_its_claims_emitted
from .unique import one_job_at_a_time_per_key
from .violation import Violation

UNCHARGED = frozenset({"released", "snoozed", "suspended", "paused", "refused", "expired"})


Found = Iterator[str]
OfJob = Callable[[JobHistory], Found]


def no_acknowledged_job_is_lost(job: JobHistory) -> Found:
    """D and N: an acknowledged job is in the store at the end."""
    known = bool(job.acks) or any(one.says == "ok" for one in job.inserts)
    excused = job.may_be_gone and (job.run.terms.deletes or not job.acks)
    if known and job.final is None and not excused:
        yield "it was acknowledged, but it is not in the store"


def every_job_has_an_end(job: JobHistory) -> Found:
    """N: after the faults have stopped, every job ends."""
    if job.run.terms.drained and job.final is not None and not ended(job) and not never_begun(job):
        yield f"it is still {job.final.state} after everything was to have ended"


def nothing_is_written_that_was_called_unwritten(job: JobHistory) -> Found:
    """U: "nothing was written" is true."""
    if job.denied:
        yield "its program got StoreUnavailable (nothing written), but the job exists"
    if job.final is not None and job.inserts and all(one.says == "failed" for one in job.inserts):
        yield "every insert got StoreUnavailable (nothing written), but the job exists"
    for fence in {end.entry.fence for end in job.ends.values()}:
        ends = [end for end in job.ends.values() if end.entry.fence == fence]
        again = [claim for claim in job.claims if claim.entry.fence > fence]
        if not job.run.terms.all_recorded and fence in _swept(job):
            continue  # by a writer that is not recorded
        if again and all(one.says == "failed" for end in ends for one in end.sent) and not _changed(job, fence):
            yield f"every end of the claim with fence {fence} got StoreUnavailable (nothing written), but it ended"


def one_end_per_reset_count(job: JobHistory) -> Found:
    """F: a job ends once per `reset_count`, and no claim comes after its end."""
    terminal: dict[int, list[tuple[int, str]]] = {}
    for end in job.ends.values():
        if end.accepted is not None and end.entry.state in TERMINAL:
            reset_count = job.reset_count_of(end.entry.fence)
            if reset_count is not None:
                terminal.setdefault(reset_count, []).append((end.entry.fence, end.entry.state))
    for change in job.changes:
        if change.says == "ok" and change.entry.state in TERMINAL:
            reset_count = job.reset_count_of(change.entry.fence) or 0 if change.entry.fence else 0
            if not _retried(job):
                terminal.setdefault(reset_count, []).append((change.entry.fence, change.entry.state))
    for reset_count, ends in terminal.items():
        if len(ends) > 1:
            listed = ", ".join(f"{state} with fence {fence}" for fence, state in ends)
            yield f"it ended {len(ends)} times at reset_count {reset_count}: {listed}"
        last = min(fence for fence, _ in ends)
        for claim in job.claims:
            if claim.entry.reset_count == reset_count and claim.entry.fence > last:
                yield f"it was claimed with fence {claim.entry.fence} after it had ended with fence {last}"


def every_claim_has_a_new_fence(job: JobHistory) -> Found:
    """L: no fence is assigned twice, and a later claim has a higher one."""
    seen: dict[int, Claim] = {}
    for claim in job.claims:
        if claim.entry.fence in seen:
            yield f"two claims were given fence {claim.entry.fence}"
        seen[claim.entry.fence] = claim
    by_asking = sorted(job.claims, key=lambda claim: claim.asked)
    by_answer = sorted(job.claims, key=lambda claim: claim.answered)
    highest, at = 0, 0
    for claim in by_asking:
        while at < len(by_answer) and by_answer[at].answered < claim.asked:
            highest = max(highest, by_answer[at].entry.fence)
            at += 1
        if claim.entry.fence <= highest and seen[claim.entry.fence] is claim:
            yield f"a claim was given fence {claim.entry.fence} when {highest} had been given out"


def a_claim_ends_before_the_next(job: JobHistory) -> Found:
    """L: leases of one job are disjoint, by the order of events and by the store's own time."""
    claims = sorted(job.claims, key=lambda claim: claim.entry.fence)
    for one, following in pairwise(claims):
        fence = one.entry.fence
        if fence == following.entry.fence or not job.run.terms.all_recorded:
            continue  # reported by another rule, or ended by a writer that is not recorded
        over = any(
            end.entry.fence == fence and any(sent.asked < following.answered and sent.says != "no" for sent in end.sent)
            for end in job.ends.values()
        )
        if not over and not any(
            change.entry.fence == fence and change.asked < following.answered and change.says != "no"
            for change in job.changes
        ):
            yield f"it was claimed with fence {following.entry.fence} before the claim with fence {fence} had ended"
    if job.run.terms.store_time and job.final is not None:
        # A store may read the time of a claim at any point of the call that makes it.
        calls = {claim.entry.fence: claim.entry.at - claim.asked_at for claim in job.claims}
        past = sorted(job.final.past or (), key=lambda line: line.fence)
        for one, following in pairwise(past):
            if following.started_at is None or following.fence not in calls:
                continue
            if one.ended_at > following.started_at + calls[following.fence]:
                yield f"by the store's time the claim with fence {following.fence} began before {one.fence} ended"


def no_lease_ends_early(job: JobHistory) -> Found:
    """C and L: a claim is recovered no sooner than one lease after the holder's last answered heartbeat."""
    holders = {claim.entry.fence: claim.entry.holder for claim in job.claims}
    for end in job.ends.values():
        accepted, holder = end.accepted, holders.get(end.entry.fence)
        if not end.entry.sweep or accepted is None or holder is None:
            continue
        if job.run.gone.get(holder, NEVER) < accepted.answered:
            continue
        first = next(one for one in end.sent if one.says in POSSIBLE)  # the accepted one may be a repeat
        before = [heartbeat for heartbeat in job.run.heartbeats.get(holder, ()) if heartbeat.answered < first.asked]
        if before and accepted.answered_at < (until := max(b.asked_at + int(b.lease * MICROS) for b in before)):
            early = (until - accepted.answered_at) / MICROS
            yield f"the claim with fence {end.entry.fence} was called lost {early:g} s before its lease ended"


def no_superseded_fence_is_accepted(job: JobHistory) -> Found:
    """F: a claim ends once, and an old fence is refused."""
    accepted: dict[int, int] = {}
    for end in job.ends.values():
        if end.accepted is None:
            continue
        fence = end.entry.fence
        if fence in accepted:
            yield f"the claim with fence {fence} was ended twice"
        accepted[fence] = end.asked
        newer = [claim.entry.fence for claim in job.claims if claim.entry.fence > fence and claim.answered < end.asked]
        if newer:
            yield f"an end with fence {fence} was accepted after {max(newer)} had been given out"
    for note in job.notes:
        fence = note.entry.fence
        newer = [claim.entry.fence for claim in job.claims if claim.entry.fence > fence and claim.answered < note.asked]
        if note.says == "ok" and newer:
            yield f"a note with fence {fence} was accepted after {max(newer)} had been given out"


def nothing_runs_after_its_release(job: JobHistory) -> Found:
    """L: no code of a claim runs after its own holder released it."""
    released: dict[int, int] = {}
    for end in job.ends.values():
        if end.entry.outcome == "released" and end.accepted is not None:
            released[end.entry.fence] = end.asked
    for place, entry in job.story:
        if entry.event in ("began", "ran") and place > released.get(entry.fence, NEVER):
            yield f"its code {entry.event} after the claim with fence {entry.fence} had been released"


def starts_stay_within_the_bound(job: JobHistory) -> Found:
    """B: at most max_attempts charged starts per `reset_count`; and each claim runs once."""
    uncharged = {
        end.entry.fence for end in job.ends.values() if end.entry.outcome in UNCHARGED and end.possible
    }  # fmt: skip
    starts: dict[int, int] = {}
    for claim in job.claims:
        entry = claim.entry
        if 0 < entry.max_attempts < entry.attempt:
            yield f"attempt {entry.attempt} of {entry.max_attempts} was started, with fence {entry.fence}"
        if entry.fence not in uncharged:
            starts[entry.reset_count] = starts.get(entry.reset_count, 0) + 1
            if 0 < entry.max_attempts < starts[entry.reset_count]:
                count, allowed = starts[entry.reset_count], entry.max_attempts
                yield f"{count} charged starts at reset_count {entry.reset_count}; {allowed} were allowed"
    fences = [entry.fence for entry in job.began]
    for fence in {fence for fence in fences if fences.count(fence) > 1}:
        yield f"its code was run twice under fence {fence}"


def it_ends_as_it_was_settled(job: JobHistory) -> Found:
    """F: the stored state and result are from the accepted end; and a succeeded job has run to its end."""
    final = job.final
    if final is None or final.state not in TERMINAL:
        return
    if final.state == State.SUCCEEDED:
        said = [end.entry.result for end in job.ends.values() if end.entry.fence == final.fence and end.possible]
        if said and final.result not in said:
            yield "the result that is kept is not one that the last claim's holder gave"
        if job.run.terms.runs and final.fence not in job.ran and final.task != FLOW:
            yield f"it succeeded with fence {final.fence}, but its code never reached its end under it"
    for end in job.ends.values():
        terminal = end.accepted is not None and end.entry.state in TERMINAL
        if terminal and end.entry.state != final.state and not _retried(job):
            yield f"it was settled {end.entry.state}, and is kept as {final.state}"


def it_ends_as_it_must(job: JobHistory) -> Found:
    """Q, and all others: a job that can end only in an expected state has ended in it."""
    final = job.final
    expected = {entry.expect for entry in job.acks if entry.expect}
    if (
        job.run.terms.drained
        and final is not None
        and final.state in TERMINAL
        and expected
        and final.state not in expected
    ):
        yield f"it could only end {' or '.join(sorted(expected))}, and ended {final.state}: {final.what}"


def a_step_is_remembered(job: JobHistory) -> Found:
    """D: every later attempt with the same `reset_count` gets the stored result of a step."""
    first: dict[tuple[int | None, str], Entry] = {}
    for entry in job.got:
        known = first.setdefault((job.reset_count_of(entry.fence), entry.what), entry)
        if known.result != entry.result:
            was = f"{known.result} with fence {known.fence}"
            yield f"step {entry.what!r} gave {was}, and {entry.result} with fence {entry.fence}"


def no_claim_stays_with_an_expired_holder(job: JobHistory) -> Found:
    """N: after the faults have stopped, a lost claim is recovered within lease + sweep."""
    if job.held is not None:
        yield f"lease + sweep after the last fault, its claim still belonged to the expired holder {job.held.holder}"


OF_ANY_JOB: tuple[OfJob, ...] = (
    no_acknowledged_job_is_lost,
    every_job_has_an_end,
    no_claim_stays_with_an_expired_holder,
)
OF_JOB: tuple[OfJob, ...] = (
    *OF_ANY_JOB,
    nothing_is_written_that_was_called_unwritten,
    one_end_per_reset_count,
    every_claim_has_a_new_fence,
    a_claim_ends_before_the_next,
    no_lease_ends_early,
    no_superseded_fence_is_accepted,
    nothing_runs_after_its_release,
    starts_stay_within_the_bound,
    it_ends_as_it_was_settled,
    it_ends_as_it_must,
    nothing_runs_before_its_parents,
    a_step_is_remembered,
    a_stream_is_what_its_claims_emitted,
)


def one_job_per_key(history: History) -> Iterator[Violation]:
    """I: the same key gave all callers the same job, and the store has one."""
    jobs: dict[str, dict[str, None]] = {}
    for job in history.jobs.values():
        keys = {entry.key for entry in job.acks if entry.key}
        if job.final is not None and job.final.key and not any(one.entry.unique for one in job.inserts):
            keys.add(job.final.key)
        for key in sorted(keys):
            jobs.setdefault(key, {})[job.id] = None
    for key, ids in jobs.items():
        if len(ids) > 1 and not any(history.jobs[id].may_be_gone for id in ids):
            yield Violation(
                one_job_per_key.__name__, next(iter(ids)), f"key {key!r} has several jobs: {', '.join(ids)}"
            )


def the_first_in_order_is_claimed_first(history: History) -> Iterator[Violation]:
    """O: a claim never skips a job of its queue that came first and was ready all the time.

    Checked are jobs without a limit key that were due at once and are claimed for the first time: none was taken by an
    ask that was never answered. Such an ask may have locked them; then a store with locks is not checked further.
    """
    if not history.terms.store_time:
        return
    queues: dict[str, list[tuple[int, int, Claim]]] = {}
    claimed: dict[str, list[Claim]] = {}
    for job in history.jobs.values():
        for claim in job.claims:
            claimed.setdefault(claim.entry.queue, []).append(claim)
        first = next((one for one in job.claims if one.entry.fence == 1), None)
        there = next((one for one in job.inserts if one.says == "ok"), None)
        if first is None or there is None or there.entry.later or len(job.inserts) > 1 or first.entry.limit_key:
            continue
        if any(change.asked < first.answered for change in job.changes):
            continue
        queues.setdefault(first.entry.queue, []).append((there.answered, first.asked, first))
    doubtful = min(history.unanswered, default=NEVER) if history.terms.locks else NEVER
    for queue, claims in claimed.items():
        judged = [claim for claim in claims if claim.any_task and claim.answered < doubtful]
        history.judged += len(judged)
        yield from _passed_over(queues.get(queue, []), judged)


def _passed_over(ready: list[tuple[int, int, Claim]], claims: list[Claim]) -> Iterator[Violation]:
    ready.sort(key=lambda one: one[0])
    waiting: list[tuple[tuple[int, int, int], int, int, str]] = []
    at = 0
    for claim in sorted(claims, key=lambda one: one.answered):
        while at < len(ready) and ready[at][0] < claim.answered:
            there, taken, first = ready[at]
            heapq.heappush(waiting, (first.place, there, taken, first.entry.job))
            at += 1
        while waiting and waiting[0][2] <= claim.answered:
            heapq.heappop(waiting)
        if not waiting or waiting[0][0] >= claim.place:
            continue
        for place, there, taken, job in sorted(waiting):
            if place >= claim.place:
                break
            if there < claim.asked and taken > claim.answered and job != claim.entry.job:
                what = f"it waited at {place} when {claim.entry.job} was claimed, which waited at {claim.place}"
                yield Violation(the_first_in_order_is_claimed_first.__name__, job, what)
                break


def nothing_is_left_behind(history: History) -> Iterator[Violation]:
    """No process, lock, temporary key or file is left at the end."""
    for entry in history.left:
        yield Violation(nothing_is_left_behind.__name__, "", entry.what)


OF_ALL = (
    one_job_per_key,
    one_job_at_a_time_per_key,
    the_first_in_order_is_claimed_first,
    no_limit_key_runs_more_than_it_may,
    no_limit_key_starts_more_often_than_it_may,
    nothing_is_left_behind,
)


def _swept(job: JobHistory) -> set[int]:
    """The claims that the store keeps as lost."""
    past = None if job.final is None else job.final.past
    return {line.fence for line in past or () if line.outcome == "lost"}


def _retried(job: JobHistory) -> bool:
    return any(change.entry.what == "state" and change.entry.reset_count > 0 for change in job.changes)


def _changed(job: JobHistory, fence: int) -> bool:
    return any(change.entry.fence == fence and change.says != "no" for change in job.changes)
