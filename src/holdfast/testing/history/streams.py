"""The rule of streams: what their readers get."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...core.job import State
from .job_history import JobHistory
from .journal import Entry


def a_stream_is_what_its_claims_emitted(job: JobHistory) -> Iterator[str]:
    """F: all readers get the same chunks once, claim after claim, from its first one on; all of the last claim."""
    emitted, streams = _by_fence(job.emitted), dict[str, list[Entry]]()
    for entry in job.received:
        streams.setdefault(entry.holder, []).append(entry)
    for reader, stream in streams.items():
        places = [(entry.fence, entry.seq) for entry in stream]
        if places != sorted(set(places)) or sorted(places) != sorted(places, key=lambda place: place[1]):
            yield f"reader {reader!r} got chunks twice, or not in the order of their claims and positions: {places}"
        for fence, values in _by_fence(stream).items():
            known = emitted.get(fence, [])
            if known[: len(values)] != values:
                yield f"reader {reader!r} got {values} of the claim with fence {fence}, which emitted {known}"
        last = job.final and job.final.state == State.SUCCEEDED and job.final.fence
        if last and _by_fence(stream).get(last, []) != emitted.get(last, []):
            yield f"reader {reader!r} did not get all that the claim with fence {last} emitted: {emitted.get(last)}"
    if len({tuple((entry.fence, entry.seq, entry.result) for entry in stream) for stream in streams.values()}) > 1:
        yield f"readers {sorted(streams)} did not get the same chunks"


def _by_fence(entries: Iterable[Entry]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for entry in entries:
        found.setdefault(entry.fence, []).append(entry.result)
    return found
