"""Histories made by hand, for tests of their checker."""

from __future__ import annotations

from itertools import count

from holdfast.testing.history import (
    Entry,
    acknowledged,
    began,
    ran,
)

SECOND = 1_000_000
LEASE = 10.0


class Story:
    """A history, written step by step; every step takes a second."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._calls = count(1)
        self._nonces = count(100)

    def add(self, *entries: Entry) -> None:
        for entry in entries:
            entry.at, entry.by = len(self.entries) * SECOND, "test"
            self.entries.append(entry)

    def call(self) -> str:
        return f"c{next(self._calls)}"

    def answered(self, call, **answers):
        self.add(Entry("answered", call=call, says="ok", **answers))

    def enqueue(self, job="j", *, ack=True, key="", expect="", says="created", **fields):
        call = self.call()
        self.add(Entry("insert", call=call, job=job, key=key, queue="default", **fields))
        if says == "failed":
            self.add(Entry("answered", call=call, says="failed"))
            return
        self.answered(call, inserts=[f"{says} {job}"])
        if ack:
            self.add(acknowledged(job, key=key, expect=expect))

    def ask(self):
        call = self.call()
        self.add(Entry("ask", call=call, holder="w"))
        return call

    def take(
        self,
        call,
        job="j",
        fence=1,
        *,
        attempt=None,
        reset_count=0,
        holder="w",
        place=(0, 0, 1),
        max_attempts=5,
        **limit_key,
    ):
        priority, run_at, seq = place
        self.add(
            Entry("answered", call=call, says="ok"),
            Entry(
                "claimed",
                call=call,
                job=job,
                fence=fence,
                attempt=attempt or fence,
                reset_count=reset_count,
                holder=holder,
                queue="default",
                priority=priority,
                run_at=run_at,
                seq=seq,
                max_attempts=max_attempts,
                started_at=len(self.entries) * SECOND,
                **limit_key,
            ),
        )

    def claim(self, job="j", fence=1, **fields):
        self.take(self.ask(), job, fence, **fields)

    def run(self, job="j", fence=1):
        self.add(began(job, fence), ran(job, fence))

    def settle(self, job="j", fence=1, state="succeeded", *, says="yes", nonce=None, **fields):
        call = self.call()
        outcome = fields.pop("outcome", state)
        nonce = nonce or next(self._nonces)
        self.add(Entry("settle", call=call, job=job, fence=fence, nonce=nonce, state=state, outcome=outcome, **fields))
        if says in ("yes", "no"):
            self.answered(call, settles=[says == "yes"])
        elif says != "nothing":
            self.add(Entry("answered", call=call, says=says))
        return nonce

    def change(self, job="j", fence=0, *, says=True, **fields):
        call = self.call()
        self.add(Entry("change", call=call, job=job, fence=fence, **fields))
        self.answered(call, changes=[says])

    def heartbeat(self, holder="w", lease=LEASE):
        call = self.call()
        self.add(Entry("heartbeat", call=call, holder=holder, lease=lease))
        self.answered(call)

    def end(self, job="j", state="succeeded", fence=1, **fields):
        self.add(Entry("final", job=job, state=state, fence=fence, **fields))

    def finish(self, *jobs):
        """Claims that go well, one after the other, and with them the jobs."""
        for job in jobs:
            self.run(job)
            self.settle(job)
            self.end(job)

    def work(self, job="j", **limit_key):
        """A claim that went well, and with it the job."""
        self.claim(job, **limit_key)
        self.finish(job)

    def whole(self, job="j", **fields):
        """A job that went well."""
        self.enqueue(job, **fields)
        self.work(job)

    def whole_in(self, job, **limit_key):
        """The same, in a limit key."""
        self.enqueue(job)
        self.work(job, **limit_key)
