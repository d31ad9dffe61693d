"""The conformance suite for the memory store, which is the reference."""

from holdfast.store.reference.memory import MemoryStore
from holdfast.testing.conformance import ManualTimeHarness, conformance_suite
from support.conforming import beside_the_reference


class MemoryHarness(ManualTimeHarness):
    lacks = frozenset({"multi_process", "transactional_completion"})

    def connect(self):
        return MemoryStore(self.clock)

    async def reopen(self, store):
        return await self.another(store)  # the jobs live in this process: nothing else could see them


TestMemory = conformance_suite(MemoryHarness)
TestMemoryBesideTheReference = beside_the_reference(MemoryHarness, 200)
