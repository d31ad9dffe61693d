"""The rules that every history keeps: what `promises` say, as questions about one job or about all of them.

A rule never guesses. What was not answered may have happened or not; a rule calls out only what neither can explain.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from itertools import pairwise

from ...core.clock import MICROS
from ...core.job import TERMINAL, State
from ...flows.creation import TASK as FLOW
from .broken import Broken
from .flows import never_begun, nothing_runs_before_its_parents
from .journal import Entry
from .limits import no_limit_key_runs_more_than_it_may, no_limit_key_starts_more_often_than_it_may
from .lives import NEVER, POSSIBLE, Claim, History, Life, ended
from .unique import one_job_at_a_time_per_key

UNCHARGED = frozenset({"released", "snoozed", "suspended", "paused", "expired"})


Found = Iterator[str]
OfJob = Callable[[Life], Found]


def no_acknowledged_job_is_lost(life: Life) -> Found:
    """D and N: an acknowledged job is there at the end."""
    known = bool(life.acks) or any(one.says == "ok" for one in life.inserts)
    excused = life.may_be_gone and (life.run.terms.deletes or not life.acks)
    if known and life.final is None and not excused:
        yield "it was acknowledged, but it is not in the store"


def every_job_has_an_end(life: Life) -> Found:
    """N: once faults have stopped, everything that is there comes to its end."""
    if life.run.terms.drained and life.final is not None and not ended(life) and not never_begun(life):
        yield f"it is still {life.final.state} after everything was to have ended"


def nothing_is_written_that_was_called_unwritten(life: Life) -> Found:
    """U: "nothing was written" is true."""
    if life.denied:
        yield "its program got StoreUnavailable (nothing written), but the job exists"
    if life.final is not None and life.inserts and all(one.says == "failed" for one in life.inserts):
        yield "every insert got StoreUnavailable (nothing written), but the job exists"
    for fence in {end.entry.fence for end in life.ends.values()}:
        ends = [end for end in life.ends.values() if end.entry.fence == fence]
        again = [claim for claim in life.claims if claim.entry.fence > fence]
        if not life.run.terms.everybody and fence in _swept(life):
            continue  # by somebody who tells nothing
        if again and all(one.says == "failed" for end in ends for one in end.sent) and not _changed(life, fence):
            yield f"every end of the claim with fence {fence} got StoreUnavailable (nothing written), but it ended"


def one_end_per_life(life: Life) -> Found:
    """F: one terminal event per life, and none after it."""
    terminal: dict[int, list[tuple[int, str]]] = {}
    for end in life.ends.values():
        if end.accepted is not None and end.entry.state in TERMINAL:
            lived = life.life_of(end.entry.fence)
            if lived is not None:
                terminal.setdefault(lived, []).append((end.entry.fence, end.entry.state))
    for change in life.changes:
        if change.says == "ok" and change.entry.state in TERMINAL:
            lived = life.life_of(change.entry.fence) or 0 if change.entry.fence else 0
            if not _retried(life):
                terminal.setdefault(lived, []).append((change.entry.fence, change.entry.state))
    for lived, ends in terminal.items():
        if len(ends) > 1:
            listed = ", ".join(f"{state} with fence {fence}" for fence, state in ends)
            yield f"it ended {len(ends)} times at reset_count {lived}: {listed}"
        last = min(fence for fence, _ in ends)
        for claim in life.claims:
            if claim.entry.reset_count == lived and claim.entry.fence > last:
                yield f"it was claimed with fence {claim.entry.fence} after it had ended with fence {last}"


def every_claim_has_a_new_fence(life: Life) -> Found:
    """L: no fence is given out twice, and a later claim has a higher one."""
    seen: dict[int, Claim] = {}
    for claim in life.claims:
        if claim.entry.fence in seen:
            yield f"two claims were given fence {claim.entry.fence}"
        seen[claim.entry.fence] = claim
    by_asking = sorted(life.claims, key=lambda claim: claim.asked)
    by_told = sorted(life.claims, key=lambda claim: claim.told)
    highest, at = 0, 0
    for claim in by_asking:
        while at < len(by_told) and by_told[at].told < claim.asked:
            highest = max(highest, by_told[at].entry.fence)
            at += 1
        if claim.entry.fence <= highest and seen[claim.entry.fence] is claim:
            yield f"a claim was given fence {claim.entry.fence} when {highest} had been given out"


def a_claim_ends_before_the_next(life: Life) -> Found:
    """L: leases of one job are disjoint, by the order of events and by the store's own time."""
    claims = sorted(life.claims, key=lambda claim: claim.entry.fence)
    for one, following in pairwise(claims):
        fence = one.entry.fence
        if fence == following.entry.fence or not life.run.terms.everybody:
            continue  # told elsewhere, or perhaps ended by somebody who tells nothing
        over = any(
            end.entry.fence == fence and any(sent.asked < following.told and sent.says != "no" for sent in end.sent)
            for end in life.ends.values()
        )
        if not over and not any(
            change.entry.fence == fence and change.asked < following.told and change.says != "no"
            for change in life.changes
        ):
            yield f"it was claimed with fence {following.entry.fence} before the claim with fence {fence} had ended"
    if life.run.terms.store_time and life.final is not None:
        # A store may take the time of a claim at any moment of the call that made it.
        calls = {claim.entry.fence: claim.entry.at - claim.asked_at for claim in life.claims}
        past = sorted(life.final.past or (), key=lambda line: line.fence)
        for one, following in pairwise(past):
            if following.started_at is None or following.fence not in calls:
                continue
            if one.ended_at > following.started_at + calls[following.fence]:
                yield f"by the store's time the claim with fence {following.fence} began before {one.fence} ended"


def no_lease_ends_early(life: Life) -> Found:
    """C and L: a claim is taken from its holder no sooner than a lease after a heartbeat that was answered."""
    holders = {claim.entry.fence: claim.entry.holder for claim in life.claims}
    for end in life.ends.values():
        accepted, holder = end.accepted, holders.get(end.entry.fence)
        if not end.entry.sweep or accepted is None or holder is None:
            continue
        if life.run.gone.get(holder, NEVER) < accepted.told:
            continue
        first = next(one for one in end.sent if one.says in POSSIBLE)  # what was accepted may be its repetition
        before = [heartbeat for heartbeat in life.run.heartbeats.get(holder, ()) if heartbeat.told < first.asked]
        if before and accepted.told_at < (until := max(b.asked_at + int(b.lease * MICROS) for b in before)):
            early = (until - accepted.told_at) / MICROS
            yield f"the claim with fence {end.entry.fence} was called lost {early:g} s before its lease ended"


def no_superseded_fence_is_accepted(life: Life) -> Found:
    """F: a claim ends once, and an old fence is refused."""
    accepted: dict[int, int] = {}
    for end in life.ends.values():
        if end.accepted is None:
            continue
        fence = end.entry.fence
        if fence in accepted:
            yield f"the claim with fence {fence} was ended twice"
        accepted[fence] = end.asked
        newer = [claim.entry.fence for claim in life.claims if claim.entry.fence > fence and claim.told < end.asked]
        if newer:
            yield f"an end with fence {fence} was accepted after {max(newer)} had been given out"
    for note in life.notes:
        fence = note.entry.fence
        newer = [claim.entry.fence for claim in life.claims if claim.entry.fence > fence and claim.told < note.asked]
        if note.says == "ok" and newer:
            yield f"a note with fence {fence} was accepted after {max(newer)} had been given out"


def nothing_runs_after_its_release(life: Life) -> Found:
    """L: a claim that its own holder released is not started, and a run of it does not go on."""
    released: dict[int, int] = {}
    for end in life.ends.values():
        if end.entry.outcome == "released" and end.accepted is not None:
            released[end.entry.fence] = end.asked
    for place, entry in life.story:
        if entry.event in ("began", "ran") and place > released.get(entry.fence, NEVER):
            yield f"its code {entry.event} after the claim with fence {entry.fence} had been released"


def starts_stay_within_the_bound(life: Life) -> Found:
    """B: at most max_attempts charged starts per life; and each claim runs once."""
    uncharged = {
        end.entry.fence for end in life.ends.values() if end.entry.outcome in UNCHARGED and end.possible
    }  # fmt: skip
    starts: dict[int, int] = {}
    for claim in life.claims:
        entry = claim.entry
        if 0 < entry.max_attempts < entry.attempt:
            yield f"attempt {entry.attempt} of {entry.max_attempts} was started, with fence {entry.fence}"
        if entry.fence not in uncharged:
            starts[entry.reset_count] = starts.get(entry.reset_count, 0) + 1
            if 0 < entry.max_attempts < starts[entry.reset_count]:
                count, allowed = starts[entry.reset_count], entry.max_attempts
                yield f"{count} charged starts at reset_count {entry.reset_count}; {allowed} were allowed"
    fences = [entry.fence for entry in life.began]
    for fence in {fence for fence in fences if fences.count(fence) > 1}:
        yield f"its code was run twice under fence {fence}"


def it_ends_as_it_was_settled(life: Life) -> Found:
    """F: what the store keeps is what the accepted end said; and a success is work that was done."""
    final = life.final
    if final is None or final.state not in TERMINAL:
        return
    if final.state == State.SUCCEEDED:
        said = [end.entry.result for end in life.ends.values() if end.entry.fence == final.fence and end.possible]
        if said and final.result not in said:
            yield "the result that is kept is not one that the last claim's holder gave"
        if life.run.terms.runs and final.fence not in life.ran and final.task != FLOW:
            yield f"it succeeded with fence {final.fence}, but its code never reached its end under it"
    for end in life.ends.values():
        terminal = end.accepted is not None and end.entry.state in TERMINAL
        if terminal and end.entry.state != final.state and not _retried(life):
            yield f"it was settled {end.entry.state}, and is kept as {final.state}"


def it_ends_as_it_must(life: Life) -> Found:
    """Q, and everything else: a job that could only end in one way has ended so."""
    final = life.final
    expected = {entry.expect for entry in life.acks if entry.expect}
    if (
        life.run.terms.drained
        and final is not None
        and final.state in TERMINAL
        and expected
        and final.state not in expected
    ):
        yield f"it could only end {' or '.join(sorted(expected))}, and ended {final.state}: {final.what}"


def a_step_is_remembered(life: Life) -> Found:
    """D: what a step has returned is what every later attempt of the same life is given."""
    first: dict[tuple[int | None, str], Entry] = {}
    for entry in life.got:
        known = first.setdefault((life.life_of(entry.fence), entry.what), entry)
        if known.result != entry.result:
            was = f"{known.result} with fence {known.fence}"
            yield f"step {entry.what!r} gave {was}, and {entry.result} with fence {entry.fence}"


def nothing_stays_with_the_dead(life: Life) -> Found:
    """N: once faults have stopped, a lost claim is over within lease + sweep."""
    if life.held is not None:
        yield f"lease + sweep after the last fault, its claim still belonged to the expired holder {life.held.holder}"


OF_ANY_JOB: tuple[OfJob, ...] = (no_acknowledged_job_is_lost, every_job_has_an_end, nothing_stays_with_the_dead)
OF_JOB: tuple[OfJob, ...] = (
    *OF_ANY_JOB,
    nothing_is_written_that_was_called_unwritten,
    one_end_per_life,
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
)


def one_job_per_key(history: History) -> Iterator[Broken]:
    """I: the same key gave everybody the same job, and the store has one."""
    jobs: dict[str, dict[str, None]] = {}
    for life in history.lives.values():
        keys = {entry.key for entry in life.acks if entry.key}
        if life.final is not None and life.final.key and not any(one.entry.unique for one in life.inserts):
            keys.add(life.final.key)
        for key in sorted(keys):
            jobs.setdefault(key, {})[life.id] = None
    for key, ids in jobs.items():
        if len(ids) > 1 and not any(history.lives[id].may_be_gone for id in ids):
            yield Broken(one_job_per_key.__name__, next(iter(ids)), f"key {key!r} has several jobs: {', '.join(ids)}")


def the_first_in_order_is_claimed_first(history: History) -> Iterator[Broken]:
    """O: a claim never skips a job of its queue that came first and was ready all the time.

    Checked are jobs without a limit key that were due at once and are claimed for the first time: none was taken by an
    ask that was never answered. Such an ask may have locked them; then a store with locks is not checked further.
    """
    if not history.terms.store_time:
        return
    queues: dict[str, list[tuple[int, int, Claim]]] = {}
    claimed: dict[str, list[Claim]] = {}
    for life in history.lives.values():
        for claim in life.claims:
            claimed.setdefault(claim.entry.queue, []).append(claim)
        first = next((one for one in life.claims if one.entry.fence == 1), None)
        there = next((one for one in life.inserts if one.says == "ok"), None)
        if first is None or there is None or there.entry.later or len(life.inserts) > 1 or first.entry.limit_key:
            continue
        if any(change.asked < first.told for change in life.changes):
            continue
        queues.setdefault(first.entry.queue, []).append((there.told, first.asked, first))
    doubtful = min(history.unanswered, default=NEVER) if history.terms.locks else NEVER
    for queue, claims in claimed.items():
        judged = [claim for claim in claims if claim.any_task and claim.told < doubtful]
        history.judged += len(judged)
        yield from _passed_over(queues.get(queue, []), judged)


def _passed_over(ready: list[tuple[int, int, Claim]], claims: list[Claim]) -> Iterator[Broken]:
    ready.sort(key=lambda one: one[0])
    waiting: list[tuple[tuple[int, int, int], int, int, str]] = []
    at = 0
    for claim in sorted(claims, key=lambda one: one.told):
        while at < len(ready) and ready[at][0] < claim.told:
            there, taken, first = ready[at]
            heapq.heappush(waiting, (first.place, there, taken, first.entry.job))
            at += 1
        while waiting and waiting[0][2] <= claim.told:
            heapq.heappop(waiting)
        if not waiting or waiting[0][0] >= claim.place:
            continue
        for place, there, taken, job in sorted(waiting):
            if place >= claim.place:
                break
            if there < claim.asked and taken > claim.told and job != claim.entry.job:
                what = f"it waited at {place} when {claim.entry.job} was claimed, which waited at {claim.place}"
                yield Broken(the_first_in_order_is_claimed_first.__name__, job, what)
                break


def nothing_is_left_behind(history: History) -> Iterator[Broken]:
    """No process, lock, temporary key or file is there at the end."""
    for entry in history.left:
        yield Broken(nothing_is_left_behind.__name__, "", entry.what)


OF_ALL = (
    one_job_per_key,
    one_job_at_a_time_per_key,
    the_first_in_order_is_claimed_first,
    no_limit_key_runs_more_than_it_may,
    no_limit_key_starts_more_often_than_it_may,
    nothing_is_left_behind,
)


def _swept(life: Life) -> set[int]:
    """The claims that the store keeps as lost."""
    past = None if life.final is None else life.final.past
    return {line.fence for line in past or () if line.outcome == "lost"}


def _retried(life: Life) -> bool:
    return any(change.entry.what == "state" and change.entry.reset_count > 0 for change in life.changes)


def _changed(life: Life, fence: int) -> bool:
    return any(change.entry.fence == fence and change.says != "no" for change in life.changes)
