"""The idempotency cache: each request is made once, and old answers are removed."""

import asyncio

from holdfast.http import idempotency_cache as recall_module
from holdfast.http.call import Answer
from holdfast.http.idempotency_cache import IdempotencyCache
from holdfast.testing.clock import ManualClock


async def test_a_request_that_comes_again_is_made_once_and_answered_alike():
    recall, made = IdempotencyCache(ManualClock()), []

    async def make():
        made.append(1)
        await asyncio.sleep(0)
        return Answer(200, b"once")

    together = await asyncio.gather(recall.once("x", make), recall.once("x", make), recall.again("x"))
    assert {answer.body for answer in (*together, await recall.again("x"))} == {b"once"}
    assert made == [1]
    assert await recall.again("y") is None


async def test_a_request_continues_after_its_client_has_disconnected():
    recall, gate = IdempotencyCache(ManualClock()), asyncio.Event()

    async def make():
        await gate.wait()
        return Answer(200, b"done")

    waiting = asyncio.create_task(recall.once("x", make))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    gate.set()
    assert (await recall.again("x")).body == b"done"


async def test_answers_are_forgotten_by_age_and_by_size(monkeypatch):
    clock = ManualClock()
    recall = IdempotencyCache(clock)

    async def answered(name, size):
        async def make():
            return Answer(200, b"x" * size)

        await recall.once(name, make)
        await asyncio.sleep(0)

    await answered("old", 1)
    clock.advance(recall_module.KEPT_SECONDS + 1)
    await answered("new", 1)
    assert await recall.again("old") is None
    assert await recall.again("new") is not None
    monkeypatch.setattr(recall_module, "KEPT_BYTES", 10_000)
    await answered("large", 8_000)
    await answered("larger", 9_000)
    assert await recall.again("large") is None
    assert await recall.again("larger") is not None
