"""Plain functions run in threads, and the loop hears of their ends together."""

import asyncio
import threading
import time

import pytest

from holdfast.core.clock import SystemClock
from holdfast.worker.run.thread import Threads
from support.eventually import eventually


@pytest.fixture
async def threads():
    made = Threads(3, SystemClock())
    yield made
    made.close()


async def ended(call: asyncio.Future) -> object:
    return await asyncio.wait_for(call, 90)


def hold(gate: threading.Event) -> None:
    assert gate.wait(90)


async def test_values_and_exceptions_come_back(threads):
    assert await ended(threads.call(divmod, (7, 2), {})) == (3, 1)
    assert await ended(threads.call(dict, (), {"a": 1})) == {"a": 1}
    with pytest.raises(ZeroDivisionError):
        await ended(threads.call(divmod, (7, 0), {}))
    with pytest.raises(SystemExit):
        await ended(threads.call(exit, (3,), {}))
    assert await ended(threads.call(divmod, (7, 2), {})) == (3, 1), "the thread goes on"


@pytest.mark.parametrize("kind", [StopIteration, GeneratorExit])
async def test_what_would_end_the_waiting_coroutine_is_an_error(threads, kind):
    def end() -> None:
        raise kind("no more")

    with pytest.raises(RuntimeError, match="the task raised") as raised:
        await threads.call(end, (), {})
    assert isinstance(raised.value.__cause__, kind)


async def test_as_many_threads_as_are_needed_and_no_more_than_asked_for(threads):
    for number in range(10):
        assert await threads.call(abs, (number,), {}) == number
    assert len(threads._threads) == 1
    gate = threading.Event()
    held = [threads.call(hold, (gate,), {}) for _ in range(5)]
    assert len(threads._threads) == 3
    gate.set()
    await asyncio.gather(*held)


async def test_calls_that_end_while_the_loop_is_busy_wake_it_once(threads, monkeypatch):
    woken, made, loop = [], [], asyncio.get_running_loop()
    wake = loop.call_soon_threadsafe
    monkeypatch.setattr(loop, "call_soon_threadsafe", lambda *call: (woken.append(call), wake(*call)))
    calls = [threads.call(made.append, (number,), {}) for number in range(50)]
    deadline = time.monotonic() + 30
    while len(made) < 50 and time.monotonic() < deadline:
        time.sleep(0.001)  # noqa: ASYNC251  # keeps the loop busy
    await asyncio.gather(*calls)
    assert len(made) == 50
    assert len(woken) < 10


async def test_an_end_is_not_kept_back_by_a_call_that_runs_on(threads):
    gate = threading.Event()
    slow = threads.call(hold, (gate,), {})
    for number in range(100):
        assert await ended(threads.call(abs, (number,), {})) == number
    assert not slow.done()
    gate.set()
    await slow


async def test_a_call_that_was_cancelled_before_it_began_is_not_made(threads):
    gate, made = threading.Event(), []
    held = [threads.call(hold, (gate,), {}) for _ in range(3)]
    waiting = threads.call(made.append, (1,), {})
    waiting.cancel()
    held[0].cancel()  # begun: it runs on, and nobody waits for it
    gate.set()
    await asyncio.gather(*held[1:])
    assert await threads.call(abs, (-1,), {}) == 1
    assert made == []
    await eventually(lambda: threads._unanswered == 0)


async def test_closing_cancels_what_has_not_begun_and_ends_the_threads(threads):
    gate, made = threading.Event(), []
    held = [threads.call(hold, (gate,), {}) for _ in range(3)]
    waiting = threads.call(made.append, (1,), {})
    await eventually(lambda: threads._calls.qsize() == 1)
    threads.close()
    assert waiting.cancelled()
    with pytest.raises(RuntimeError, match="has stopped"):
        threads.call(abs, (1,), {})
    gate.set()
    await asyncio.gather(*held)
    await eventually(lambda: not any(thread.is_alive() for thread in threads._threads))
    assert made == []


def test_a_call_that_ends_after_its_loop_does_no_harm():
    gate, begun = threading.Event(), threading.Event()

    def late() -> None:
        begun.set()
        gate.wait(90)

    async def leave() -> Threads:
        made = Threads(1, SystemClock())
        made.call(late, (), {})
        await asyncio.to_thread(begun.wait, 30)
        return made

    made = asyncio.run(leave())
    gate.set()
    made.close()
    made._threads[0].join(90)
    assert not made._threads[0].is_alive()
