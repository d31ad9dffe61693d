"""What a job prints, on its way to the store."""

import asyncio
import os
import threading

from holdfast.core.errors import InvalidJob, StoreUnavailable
from holdfast.worker.processes import output
from holdfast.worker.processes.output import OutputWriter, RingBuffer
from holdfast.worker.processes.printer import Printer
from support.eventually import eventually


def test_a_notification_keeps_the_newest_and_says_where_they_begin():
    ring = RingBuffer(10)
    assert ring.put(b"12345")
    assert not ring.put(b"67890")
    ring.put(b"abc")
    assert ring.take() == (5, b"67890abc")
    assert ring.take() is None
    ring.put(b"x" * 25)
    assert ring.take() == (13 + 15, b"x" * 10)


def test_what_a_signal_handler_or_finalizer_prints_meanwhile_comes_after_it():
    """It would wait for its own thread, for ever."""
    ring = RingBuffer(100)

    class Piece(bytes):
        """Its length is asked for while the buffer is in use, as a finalizer may run then."""

        def __len__(self):
            ring.put(b"-late")
            return super().__len__()

    printing = threading.Thread(target=ring.put, args=(Piece(b"early"),), daemon=True)
    printing.start()
    printing.join(5)
    assert not printing.is_alive()
    assert ring.take() == (0, b"early-late")


class Sink:
    """Takes notes, after some that it refuses."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.notes = []

    async def __call__(self, **note):
        answer = self.answers.pop(0) if self.answers else True
        if isinstance(answer, Exception):
            raise answer
        self.notes.append(note)
        return answer


class Printing:
    """A printer, its writer, and a child that prints."""

    def __init__(self, sink, limit=1000):
        self.writer = OutputWriter("a-job", sink, limit, asyncio.get_running_loop())
        self.printer = Printer(self.writer)
        self.child = os.dup(self.printer.fd)
        self.printer.handed_over()

    async def finish(self, **also):
        await self.printer.end()
        await self.writer.finish(**also)


def printer_with(sink):
    printing = Printing(sink)
    return printing, printing.child


async def test_everything_printed_is_written_and_the_rest_is_noted_with_the_last_piece():
    sink = Sink()
    printer, child = printer_with(sink)
    os.write(child, b"one")
    await eventually(lambda: sink.notes)
    os.write(child, b"two")
    os.close(child)
    await printer.finish(meta={"done": True})
    assert b"".join(note["output"].data for note in sink.notes if "output" in note) == b"onetwo"
    assert [note["output"].at for note in sink.notes if "output" in note] == [0, 3]
    assert sink.notes[-1]["meta"] == {"done": True}


async def test_a_write_that_failed_is_made_again():
    sink = Sink(StoreUnavailable("away"))
    printer, child = printer_with(sink)
    os.write(child, b"one")
    os.close(child)
    await printer.finish()
    assert [note["output"].data for note in sink.notes] == [b"one"]


async def test_output_is_written_once_the_store_is_back(monkeypatch):
    monkeypatch.setattr(output, "OUTPUT_PAUSE", 0.001)
    sink = Sink(*[StoreUnavailable("away")] * 10)
    writer = OutputWriter("a-job", sink, 1000, asyncio.get_running_loop())
    writer.put(b"one")
    await eventually(lambda: len(sink.answers) < 8)
    writer.put(b"two")
    await eventually(lambda: len(sink.notes) == 2)
    assert [(note["output"].at, note["output"].data) for note in sink.notes] == [(0, b"one"), (3, b"two")]


async def test_a_run_that_has_ended_does_not_wait_for_ever_for_the_store(monkeypatch):
    monkeypatch.setattr(output, "OUTPUT_PAUSE", 0.001)
    sink = Sink(*[StoreUnavailable("away")] * 1000)
    writer = OutputWriter("a-job", sink, 1000, asyncio.get_running_loop())
    writer.put(b"one")
    await eventually(lambda: len(sink.answers) < 995)
    await asyncio.wait_for(writer.finish(meta={}), 90)


async def test_a_piece_that_the_store_refuses_does_not_hold_up_the_next(monkeypatch):
    monkeypatch.setattr(output, "OUTPUT_PAUSE", 0.001)
    sink = Sink(*[InvalidJob("too large")] * 3)
    writer = OutputWriter("a-job", sink, 1000, asyncio.get_running_loop())
    writer.put(b"one")
    await eventually(lambda: not sink.answers)
    writer.put(b"two")
    await eventually(lambda: sink.notes)
    assert [(note["output"].at, note["output"].data) for note in sink.notes] == [(3, b"two")]


async def test_a_lost_claim_writes_no_more():
    sink = Sink(False)
    printer, child = printer_with(sink)
    os.write(child, b"one")
    await eventually(lambda: sink.notes)
    os.write(child, b"two")
    os.close(child)
    await printer.finish(meta={})
    assert len(sink.notes) == 1


async def test_a_process_that_keeps_the_pipe_open_does_not_delay_the_end():
    sink = Sink()
    printer, child = printer_with(sink)
    os.write(child, b"kept open")
    await asyncio.wait_for(printer.finish(), 90)
    assert sink.notes[0]["output"].data == b"kept open"
    os.close(child)


async def test_the_end_of_a_run_gets_what_is_not_written_and_what_is_not_answered():
    answer = asyncio.Event()

    async def sink(**note):
        seen.append(note["output"])
        return await answer.wait()

    seen = []
    writer = OutputWriter("a-job", sink, 1000, asyncio.get_running_loop())
    writer.put(b"one")
    await eventually(lambda: seen)
    writer.put(b"two")
    assert [(piece.at, piece.data) for piece in writer.end()] == [(0, b"one"), (3, b"two")]
    answer.set()
    writer.put(b"late")
    assert writer.end() == []
