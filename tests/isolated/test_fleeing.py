"""Fork bombs, double-forked children and filled pipes: a job in a process of its own takes nothing with it."""

import fcntl
import os
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.app import parts_of
from support.eventually import eventually
from support.workers import working

sys.path.insert(0, str(Path(__file__).parent))
import fleeing_jobs as tasks


@pytest.fixture
async def app(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    store = parts_of(Holdfast(f"sqlite:///{tmp_path}/jobs.db")).runtime.store
    monkeypatch.setattr(parts_of(tasks.app).runtime, "_store", store)
    yield tasks.app
    await tasks.app.close()


def is_free(path):
    """Whether nobody holds the lock of a file any more."""
    lock = os.open(path, os.O_RDWR)
    try:
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        return False
    finally:
        os.close(lock)


@pytest.mark.parametrize("name", [pytest.param("flee_and_stay", marks=pytest.mark.extended), "flee_and_return"])
async def test_children_that_fork_and_flee_end_with_their_job(app, tmp_path, name):
    path = tmp_path / "lock"
    handle = await parts_of(app).registry.tasks[name].enqueue(str(path))
    async with working(app, concurrency=2):
        if name == "flee_and_stay":
            await eventually(lambda: path.exists() and not is_free(path))
            await handle.cancel()
        job = await handle.wait(timeout=30)
        await eventually(lambda: is_free(path), tasks.SECONDS / 3)
    assert (job.state, job.result) == (("succeeded", "returned") if name == "flee_and_return" else ("cancelled", None))


async def test_a_job_that_fills_its_pipes_is_not_blocked_by_them(app, tmp_path):
    handle = await tasks.fill_the_pipe.enqueue(str(tmp_path / "done"))
    async with working(app, concurrency=2):
        job = await handle.wait(timeout=30)
    assert job.state == "succeeded"
    assert (tmp_path / "done").exists()
