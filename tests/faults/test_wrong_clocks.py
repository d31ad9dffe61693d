"""A wall clock an hour off never ends a lease early, nor makes a lost one last. (C)

The clock of one worker process is set off from inside (an app takes its clock as an argument): the machine's own clock
cannot be changed for one process without a library that is not among the locked ones.
"""

from __future__ import annotations

import pytest

HOUR = 3600.0


@pytest.mark.parametrize("skew", [HOUR, -HOUR], ids=["fast", "slow"])
def test_a_wall_clock_an_hour_off_ends_no_lease_early(look, processes, journal, gates, skew):
    """Each of the two holds a job, and each would take the other's over if it thought that the lease had ended."""
    held: dict[int, str] = {}
    workers = []
    for n, wall_skew in enumerate((0.0, skew)):
        held[n] = look.enqueue("gated", n)
        workers.append(processes.worker(concurrency=1, lease=2.0, wall_skew=wall_skew))
        look.until_started(held[n])
    sane, wrong = workers
    assert (look.held_by(sane.pid), look.held_by(wrong.pid)) == ({held[0]}, {held[1]})
    # Two more with free slots, for whatever comes free.
    spare = [processes.worker(concurrency=2, lease=2.0, wall_skew=wall_skew) for wall_skew in (0.0, skew)]
    look.until_registered(*[worker.pid for worker in spare])
    look.until_beaten(7, sane.pid, wrong.pid)  # two leases
    for id in held.values():
        look.demand(id, look.job(id).fence == 1, "a lease was ended early")
    for n in held:
        gates.open(n)
    look.until_ended(held.values())
    look.demand_finished_once(dict.fromkeys(held.values(), 1))
    assert set(journal.per_job("start").values()) == {1}
    look.demand_no_trouble()


@pytest.mark.parametrize("skew", [HOUR, -HOUR], ids=["fast", "slow"])
@pytest.mark.parametrize("who", ["holder", "sweeper"])
def test_a_wall_clock_an_hour_off_does_not_make_a_lost_lease_last(look, processes, gates, skew, who):
    id = look.enqueue("gated", 1)
    holder = processes.worker(lease=1.0, wall_skew=skew if who == "holder" else 0.0)
    look.until_started(id)
    holder.kill()
    processes.worker(lease=1.0, wall_skew=skew if who == "sweeper" else 0.0)
    look.until_started(id, fence=2)
    gates.open(1)
    look.until_ended([id], limit=20)
    look.demand_finished_once({id: 2})
