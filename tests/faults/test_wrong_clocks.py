"""A wall clock that is off never ends a lease early, nor makes a lost one last, nor loses a flow. (C)

The clock of one worker process is set off from inside (an app takes its clock as an argument): the machine's own clock
cannot be changed for one process without a library that is not among the locked ones.
"""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Flow
from holdfast.app import parts_of
from support.inside import session_of

HOUR = 3600.0
FAST = pytest.param(HOUR, id="fast")
SLOW = pytest.param(-HOUR, id="slow", marks=pytest.mark.extended)


@pytest.mark.parametrize("skew", [FAST, SLOW])
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
    look.until_renewed(7, sane.pid, wrong.pid)  # two leases
    for id in held.values():
        look.demand(id, look.job(id).fence == 1, "a lease was ended early")
    for n in held:
        gates.open(n)
    look.until_ended(held.values())
    look.demand_finished_once(dict.fromkeys(held.values(), 1))
    assert set(journal.per_job("start").values()) == {1}
    look.demand_no_trouble()


@pytest.mark.parametrize("skew", [FAST, SLOW])
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


@pytest.mark.parametrize(
    "skew",
    [
        pytest.param(-61 * 60.0, id="-61 min", marks=pytest.mark.extended),
        pytest.param(61 * 60.0, id="+61 min"),
        pytest.param(26 * HOUR, id="+26 h", marks=pytest.mark.extended),
    ],
)
def test_a_worker_whose_wall_clock_is_off_loses_no_flow(look, processes, monkeypatch, skew):
    """It looks for abandoned flows again and again before each write of the process that enqueues one."""
    wrong = processes.worker(lease=1.0, wall_skew=skew)
    look.until_registered(wrong.pid)
    store, held = session_of(look.app).store, 0

    def slowly(write):
        async def make(*given):
            nonlocal held
            held += 1
            await asyncio.to_thread(look.until_renewed, 2, wrong.pid)
            return await write(*given)

        return make

    flow = Flow()
    flow.chain(parts_of(look.app).registry.tasks["work"].using().call(3), parts_of(look.app).registry.tasks["work"])
    with monkeypatch.context() as patched:
        for name in ("write", "put_record"):
            patched.setattr(store, name, slowly(getattr(store, name)))
        handle = look.sync.enqueue_flow(flow, id="slow")  # with an id of its own it is announced, and made step by step
    assert held > 2
    look.until_ended([handle.id])
    assert (handle.status().state, handle.status().counts) == ("succeeded", {"succeeded": 2})
