"""The demo's own route: kill a worker in the middle of a job, so that one can watch the job survive."""

from __future__ import annotations

import os
import signal

import msgspec

from ..core.job import State
from .call import Answer, Call, json
from .endpoint import Endpoint
from .problems import NOT_FOUND, Refused


class Killed(msgspec.Struct):
    """A worker that is gone, and the job that it ran."""

    pid: int
    job: str
    type: str


async def kill_worker(call: Call) -> Answer:
    """Kill (-9) the worker that runs the longest job with a checkpoint; or any that runs one."""
    workers = {worker.id: worker for worker in await call.app.workers() if worker.kind == "worker"}
    running = (await call.app.jobs(state=State.RUNNING)).jobs
    held = [job for job in running if job.worker in workers]
    if not held:
        raise Refused(NOT_FOUND, "no worker runs a job at this moment; try again in a second")
    job = min(held, key=lambda one: (one.checkpoint is None, one.started_at))
    assert job.worker is not None
    pid = workers[job.worker].pid
    os.kill(pid, signal.SIGKILL)
    return json(Killed(pid, job.id, job.task))


def endpoints() -> list[Endpoint]:
    """Only the demo's server has it, in front of workers of its own on this machine."""
    return [Endpoint("POST", "/v1/demo/kill_worker", "operate", kill_worker, {200: Killed}, problems=(NOT_FOUND,))]
