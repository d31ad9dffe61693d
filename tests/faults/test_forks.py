"""fork: parent and child both go on using the app; every acknowledged job is there, and nobody hangs. (D)"""

from __future__ import annotations

import pytest
from support.look import looking


@pytest.mark.parametrize("how", ["unique", "generations", "multiprocessing", "busy", "outliving"])
def test_parent_and_child_go_on_enqueueing_after_a_fork(store_url, processes, journal, how):
    # The test itself looks only afterwards: an open connection of its own would hide what the two do to each other.
    program = processes.start("fork_main", how=how)
    assert program.ended(60.0) == 0, f"{how}:\n{program.output()}"
    assert journal.count("done") == 1, program.output()
    acked = {entry["job"]: entry["who"] for entry in journal.entries("acked")}
    assert {who.split()[0] for who in acked.values()} >= {"parent", "child"}
    with looking(store_url, journal) as look:
        lost = acked.keys() - {job.id for job in look.jobs()}
        assert not lost, f"lost, enqueued by {sorted({acked[id] for id in lost})}: {look.stories(lost)}"
        assert look.counts() == {"queued": len(acked)}
        processes.worker(concurrency=20)
        look.until_ended(acked)
        look.demand_finished_once(dict.fromkeys(acked, 16))
