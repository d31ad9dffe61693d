"""What a flow costs the store: as much for each of its jobs, however many there are."""

import random

import pytest

from holdfast import Discard, Flow, Holdfast, State
from support.inside import session_of
from support.store_calls import calls
from support.workers import working

FEW, MANY = 400, 2400
TO_ENQUEUE, TO_RUN = 1, 16
"""Calls of the store for a flow of three jobs, those of a worker that finds nothing included."""


def test_a_flow_of_three_jobs_takes_few_calls_of_the_store():
    enqueued, ran = calls()["joined"]
    print(f"enqueued by {enqueued}, run by {ran}")
    assert sum(enqueued.values()) <= TO_ENQUEUE
    assert sum(ran.values()) <= TO_RUN


@pytest.mark.parametrize("doomed", [False, True], ids=["all succeed", "the first dies, and none of the others is run"])
async def test_each_job_of_a_large_flow_costs_no_more_than_one_of_a_small_flow(doomed):
    small, large = [await operations_per_job(jobs, doomed=doomed) for jobs in (FEW, MANY)]
    print(f"records read and operations, per job: {small:.2f} of {FEW}, {large:.2f} of {MANY}")
    assert large < 1.5 * small


async def operations_per_job(jobs: int, *, doomed: bool) -> float:
    """How many operations of its store a flow takes for each of its jobs, each record that is read counted as one."""
    app, chance, spent = Holdfast("memory://"), random.Random(7), 0

    def counted(make):
        async def count(*args):
            nonlocal spent
            answer = await make(*args)
            read = getattr(answer, "records", answer)
            spent += 1 + (len(read) if isinstance(read, list | dict) else 0)
            return answer

        return count

    @app.task
    async def node(number: int) -> None:
        if doomed and number == 0:
            raise Discard("doomed")

    flow = Flow()
    for number in range(jobs):
        parents = {chance.randrange(max(0, number - 40), number) for _ in range(2 if number else 0)}
        flow.add(node, number).after(*(flow.nodes[each] for each in parents))
    async with app:
        store = session_of(app).store
        for name in ("get", "find", "records", "put_record", "now", "write"):
            setattr(store, name, counted(getattr(store, name)))
        handle = await app.enqueue_flow(flow)
        async with working(app, concurrency=100):
            status = await handle.wait(120)
    assert status.state == (State.DEAD if doomed else State.SUCCEEDED)
    return spent / jobs
