"""Jobs that are edited while a worker claims them run with the arguments that the answer to the edit says. (F, U)"""

from __future__ import annotations

from holdfast import InvalidState, State

JOBS = 60
NEW = 1000
"""An edited job has a larger number."""


def test_an_edit_is_applied_before_the_claim_or_refused(look, processes):
    ids = look.enqueue_many("work", [(n,) for n in range(JOBS)])
    look.sync.handle(ids[-1]).edit(args=[JOBS - 1 + NEW])
    edited = {ids[-1]}
    processes.worker()
    for n in reversed(range(JOBS - 1)):  # the worker comes from the other end
        try:
            look.sync.handle(ids[n]).edit(args=[n + NEW])
        except InvalidState:
            continue
        edited.add(ids[n])
    look.until_ended(ids)
    for n, id in enumerate(ids):
        number = n + NEW if id in edited else n
        job = look.job(id)
        assert (job.state, job.result) == (State.SUCCEEDED, number**2), look.story(id)
    entries = look.sync.audit.list(action="edit", limit=JOBS + 1).entries
    assert {one.target["id"] for one in entries} == set(ids)
    assert len(entries) == JOBS
    assert {one.target["id"] for one in entries if one.status == "done"} == edited
    assert {one.status for one in entries} <= {"done", "refused"}
