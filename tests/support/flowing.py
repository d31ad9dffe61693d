"""What tests of flows share: tasks that say what they did, and another worker, step by step."""

from __future__ import annotations

from holdfast.app import parts_of
from holdfast.core.lifecycle import Outcome, settle
from holdfast.core.operations import Ask, Holder
from holdfast.core.settings import Settings
from support.inside import session_of
from support.workers import working


class Tasks:
    """What the flows here are made of, and what they did."""

    def __init__(self, app):
        self.ran = []
        self.broken = True

        @app.task
        async def note(word: str | None) -> str | None:
            self.ran.append(word)
            return word

        @app.task(max_attempts=1)
        async def fragile(word: str | None) -> str:
            if self.broken:
                raise ValueError(f"{word} broke")
            self.ran.append(word)
            return "mended"

        self.note, self.fragile = note, fragile


async def run(app, flow):
    """A flow that has been run to its end, and how it ended."""
    handle = await app.enqueue_flow(flow)
    async with working(app, poll=0.05):
        return handle, await handle.wait(90)


async def states(handle):
    """The states of a flow's jobs, in order."""
    return [str(job.state) for job in await handle.jobs()]


class ByHand:
    """Another worker, each of whose steps is made when the test says so."""

    def __init__(self, app):
        self.app = app
        self.holder = Holder("elsewhere:1:1", 60.0)

    async def claim(self):
        claims = await session_of(self.app).commit.claim(
            Ask(self.holder, ("default",), 100, parts_of(self.app).runtime.entropy.token())
        )
        return sorted(claims.records, key=lambda record: record.seq)

    async def end(self, record, outcome=None):
        outcome, nonce = outcome or Outcome.succeeded(b'"x"'), parts_of(self.app).runtime.entropy.token()
        await session_of(self.app).commit.settle(settle(record, outcome, Settings().rules, nonce=nonce, fraction=0.0))
