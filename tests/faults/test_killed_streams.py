"""What readers got of a stream survives kill -9 of its worker, and they see where the next attempt begins. (D, F)"""

from __future__ import annotations

import threading

from support.until import until


def test_a_live_reader_gets_what_is_stored_across_a_killed_attempt(look, processes, journal, gates):
    id = look.enqueue("stream", 1)
    live = []
    reader = threading.Thread(target=lambda: live.extend(_kept(look.sync.handle(id).stream(), live)), daemon=True)
    reader.start()
    worker = processes.worker()
    until(lambda: len(live) >= 10, "the reader has ten chunks", details=lambda: look.story(id))
    worker.kill()
    shown = list(live)
    stored = list(look.sync.handle(id).stream(follow=False))
    assert stored[: len(shown)] == shown, look.story(id)
    gates.open(1)
    processes.worker()
    look.until_ended([id])
    reader.join(60)
    late = list(look.sync.handle(id).stream())
    assert live == late, look.story(id)
    assert [(one.fence, one.attempt) for one in late if one.first] == [(1, 1), (2, 2)]
    for fence in (1, 2):
        emitted = [
            f"{fence}-{entry['number']}" for entry in journal.entries("emit", jobs=[id]) if entry["fence"] == fence
        ]
        got = [one.value for one in late if one.fence == fence]
        assert got == (emitted if fence == 2 else emitted[: len(got)])


def test_lines_that_a_reader_was_shown_are_there_after_a_kill_and_attempts_are_told_apart(look, processes, gates):
    id = look.enqueue("stream", 1)
    live = []
    reader = threading.Thread(
        target=lambda: live.extend(_kept(look.sync.handle(id).logs(follow=True), live)), daemon=True
    )
    reader.start()
    worker = processes.worker()
    until(lambda: len(live) >= 10, "the reader has ten lines", details=lambda: look.story(id))
    worker.kill()
    shown = list(live)
    assert list(look.sync.handle(id).logs())[: len(shown)] == shown, look.story(id)
    gates.open(1)
    processes.worker()
    look.until_ended([id])
    reader.join(60)
    late = list(look.sync.handle(id).logs())
    assert [line.text for line in live] == [line.text for line in late], look.story(id)
    for attempt in (1, 2):
        got = [line.text for line in late if line.attempt == attempt]
        assert got == [f"{attempt}-{number}" for number in range(len(got))], look.story(id)
        assert len(got) >= (10, 20)[attempt - 1]
    assert [line.attempt for line in late] == sorted(line.attempt for line in late)


def _kept(chunks, live):
    for chunk in chunks:
        live.append(chunk)
    return ()
