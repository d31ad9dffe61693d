"""Readers of a stream: what is written between two reads is not missed."""

import pytest

from holdfast import Holdfast
from holdfast.core.operations import Output
from holdfast.store.protocol import Batch
from holdfast.store.reference.memory import MemoryStore
from holdfast.testing.build import new_job, says, succeeded
from holdfast.testing.verbs import claim_one, insert


class EndsBetweenReads(MemoryStore):
    """A store in which the job emits its last chunk, and ends, right after the first read of its stream."""

    async def output(self, id, position, limit, stream=False):
        found = await super().output(id, position, limit, stream)
        if self.claim is not None:
            last = says(self.claim, output=Output(0, b'"last"\n', 100, stream=True))
            ends, self.claim = [succeeded(self.claim)], None
            await self.write(Batch(notes=[last], settles=ends))
        return found


@pytest.mark.asyncio
async def test_the_last_chunk_is_not_missed():
    store = EndsBetweenReads()
    async with Holdfast(store) as app:
        await insert(store, new_job("j"))
        store.claim = await claim_one(store)
        assert [chunk.value async for chunk in app.handle("j").stream()] == ["last"]
