"""The id of a store, which signatures are bound to."""

from holdfast.client.store_id import store_id
from holdfast.core.clock import SystemClock
from holdfast.core.errors import OutcomeUnknown
from holdfast.store.reference.memory import MemoryStore


class Unsure(MemoryStore):
    """Writes a record, and loses the answer."""

    async def put_record(self, *args, **kwargs):
        await super().put_record(*args, **kwargs)
        raise OutcomeUnknown("the answer was lost")


async def test_an_id_whose_writing_has_an_unknown_outcome_is_read():
    store = Unsure(SystemClock())
    await store.open()
    first = await store_id(store)
    assert first
    assert await store_id(store) == first
    await store.close()
