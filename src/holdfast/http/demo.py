"""The demo's route that kills a worker while it runs a job."""

from __future__ import annotations

import os
import signal

import msgspec

from ..core.job import State
from .call import Answer, Call, json
from .endpoint import Endpoint
from .problems import NOT_FOUND, Refused


class Killed(msgspec.Struct):
    """The killed worker and the job that it ran."""

    pid: int
    job: str
    type: str


async def kill_worker(call: Call) -> Answer:
    """Kill (-9) the worker of the longest running job, preferably one with a checkpoint."""
    workers = {worker.id: worker for worker in await call.app.workers() if worker.kind == "worker"}
    running = (await call.app.jobs(state=State.RUNNING)).jobs
    held = [job for job in running if job.worker in workers]
    if not held:
        raise Refused(NOT_FOUND, "no worker was killed: none runs a job now; try again in a second")
    job = min(held, key=lambda one: (one.checkpoint is None, one.started_at))
    assert job.worker is not None
    pid = workers[job.worker].pid
    os.kill(pid, signal.SIGKILL)
    return json(Killed(pid, job.id, job.task))


def endpoints() -> list[Endpoint]:
    """The demo's routes; only the demo's server, with its own local workers, has them."""
    return [Endpoint("POST", "/v1/demo/kill_worker", "operate", kill_worker, {200: Killed}, (NOT_FOUND,))]
