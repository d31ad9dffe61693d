"""Settle loop: turns outcomes into fenced settlements and writes each until the store accepts or refuses it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from ..client import signals
from ..client.claims import ManualClaims
from ..client.session import Session
from ..core.errors import HoldfastError, StoreLost
from ..core.job import Record
from ..core.lifecycle import Outcome, note_refusal
from ..core.operations import Settlement
from ..observe.events import Events
from ..tasks.durable_steps import RESEND_PAUSE
from .run import Run
from .slots import Slots

logger = logging.getLogger("holdfast")
OUTCOME_WAIT = 0.005
"""Seconds, at most, for which an outcome waits for others, while threads have enough to do."""


class Settler:
    """Writes the outcomes of runs. Writes of many runs share commits with each other and with the next claim."""

    def __init__(
        self, session: Session, claims: ManualClaims, events: Events, slots: Slots, wait: Callable[[], bool]
    ) -> None:
        self._session = session
        self._claims = claims
        self._events = events
        self._slots = slots
        self._looking: set[asyncio.Task[None]] = set()
        self._commit = session.commit
        self._outages = session.outages
        self._loop = asyncio.get_running_loop()
        self._given_up = False
        self._wait = wait
        """Whether outcomes may wait for others."""
        self._held: list[tuple[Settlement, Callable[[bool | HoldfastError], None]]] = []

    def give_up(self) -> None:
        """The worker ends and its app may be closed: jobs with unwritten outcomes are left to recovery."""
        self._given_up = True

    def settle(self, run: Run, outcome: Outcome) -> None:
        """A run has ended: free its slot and write its outcome."""
        if run.ahead is not None:
            run.ahead.take()
        if not self._slots.remove(run):
            return
        notes = () if run.log is None else run.log.end()
        if run.context is not None:
            notes = (*notes, *run.context.end_stream())
        if run.context is not None and run.context.completed:
            end = self._end(run.record, Outcome.succeeded(None))
            if end.record_end:
                self._commit.notify_end(end.id)
            self._events.settled(run.record, end, run.began)
            self._slots.note_quiet()
        elif run.why == "lost":
            self._events.refused(run.record)
            self._slots.note_quiet()
        else:
            if run.context is not None and (note := run.context.progress_note()) is not None:
                self._commit.note_soon(note)  # its last progress
            if outcome.kind == "refused" and (note := note_refusal(run.record)) is not None:
                self._commit.note_soon(note)
            run.last_notes = notes
            self._slots.settling.add(run.key)
            self._write(run, self._end(run.record, outcome))

    def _end(self, record: Record, outcome: Outcome) -> Settlement:
        return self._claims.settlement(self._session, record, outcome)

    def _write(self, run: Run, end: Settlement) -> None:
        for note in run.last_notes:
            self._commit.note_soon(note)
        answered = partial(self._answered, run, end)
        if self._wait():
            self._held.append((end, answered))
            if len(self._held) == 1:
                self._loop.call_later(OUTCOME_WAIT, self.flush)
        else:
            if self._held:
                self.flush()
            self._commit.settle_soon(end, answered)

    def flush(self) -> None:
        """Write the outcomes that wait for others."""
        held, self._held = self._held, []
        for end, answered in held:
            self._commit.settle_soon(end, answered)

    def _answered(self, run: Run, end: Settlement, answer: bool | HoldfastError) -> None:
        if isinstance(answer, StoreLost):
            logger.error(
                "the outcome of job %s was not written, because the store is lost (%s); the job may run again",
                run.record.id,
                answer.what,
            )
            self._done(run)
            return
        if isinstance(answer, HoldfastError):
            # An outcome is never dropped: the same settlement is written again until the store answers.
            self._slots.owed += 1
            self._outages.failed("writing an outcome", answer)
            self._loop.call_later(RESEND_PAUSE, self._again, run, end)
            return
        self._outages.worked("writing an outcome")
        if answer and end.waiting_for is not None and end.waiting_for.kind == "signal":
            looking = self._loop.create_task(self._look_again(run))
            self._looking.add(looking)
            looking.add_done_callback(self._looking.discard)
        else:
            self._done(run)
        if answer:
            self._events.settled(run.record, end, run.began)
        else:
            self._events.refused(run.record)

    def _done(self, run: Run) -> None:
        self._slots.settling.discard(run.key)
        self._slots.note_quiet()

    async def _look_again(self, run: Run) -> None:
        """Check for the signal again: it may have been sent just before the job began to wait."""
        try:
            await signals.look_again(self._session, run.record.id)
        except Exception as error:  # noqa: BLE001  # whatever a driver raises: the job is due again within a minute
            logger.warning("job %s: checking for its signal failed, retrying within 60 s: %s", run.record.id, error)
        finally:
            self._done(run)

    def _again(self, run: Run, end: Settlement) -> None:
        self._slots.owed -= 1
        self._slots.freed.set()
        if self._given_up:
            self._done(run)
        else:
            self._write(run, end)
