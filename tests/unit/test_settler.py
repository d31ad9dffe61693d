"""A worker's outcomes on their way to the store: which are written, and when."""

from types import SimpleNamespace

import pytest

from holdfast import State
from holdfast.client.claims import ManualClaims
from holdfast.core.clock import Entropy
from holdfast.core.lifecycle import Outcome
from holdfast.core.settings import Settings
from holdfast.store.reference.memory import MemoryStore
from holdfast.testing.verbs import running
from holdfast.worker.run import Run
from holdfast.worker.settle import Settler
from holdfast.worker.slots import Slots
from support.eventually import eventually


class Scene:
    """A settler, the settlements that it passes to the group commit, and the events that it reports."""

    def __init__(self, *, wait=False):
        self.slots, self.written, self.reported = Slots(8), [], []
        session = SimpleNamespace(commit=self, outages=None, rules=Settings().rules, entropy=Entropy(1))
        claims = ManualClaims(SimpleNamespace(opened=None), SimpleNamespace(tasks={}))
        self.settler = Settler(session, claims, self, self.slots, lambda: wait)
        self.store = MemoryStore()

    def settle_soon(self, end, answered):
        """As the group commit."""
        self.written.append(end.id)

    def settled(self, record, end, began):
        """As the events."""
        self.reported.append((record.id, end.state))

    async def ends(self, id, **fields):
        """A job was claimed, ran and has succeeded."""
        run = Run(await running(self.store, id, queue=id))
        for name, value in fields.items():
            setattr(run, name, value)
        self.slots.add(run)
        self.settler.settle(run, Outcome.succeeded(None))


async def test_a_job_that_completed_in_its_own_transaction_is_reported_and_not_written_again():
    scene = Scene()
    await scene.ends("a", context=SimpleNamespace(completed=True, end_stream=tuple))
    assert (scene.written, scene.reported) == ([], [("a", State.SUCCEEDED)])
    assert scene.slots.quiet.is_set()


@pytest.mark.parametrize("wait", [False, True])
async def test_an_outcome_waits_for_others_only_while_the_worker_has_enough_to_do(wait):
    scene = Scene(wait=wait)
    await scene.ends("a")
    await scene.ends("b")
    assert scene.written == ([] if wait else ["a", "b"])
    await eventually(lambda: scene.written == ["a", "b"])
    await scene.ends("alone")
    await eventually(lambda: scene.written == ["a", "b", "alone"])
