"""Steps, sleeps and signals of tasks in processes of their own, which have no store: the worker writes for them."""

import sys
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.app import parts_of
from holdfast.core.waiting import Waiting
from support.eventually import eventually
from support.workers import working

sys.path.insert(0, str(Path(__file__).parent))
import step_jobs as tasks


@pytest.fixture
async def app(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    store = parts_of(Holdfast(f"sqlite:///{tmp_path}/jobs.db")).runtime.store
    monkeypatch.setattr(parts_of(tasks.app).runtime, "_store", store)
    yield tasks.app
    await tasks.app.close()


@pytest.mark.parametrize("task", [tasks.alone, tasks.pooled], ids=["isolated", "process"])
async def test_a_killed_child_goes_on_behind_its_steps_and_waits_without_a_process(app, tmp_path, task):
    handle = await task.enqueue(str(tmp_path))

    async def waiting_for():
        return (await handle.job()).waiting_for

    async with working(app):
        assert await eventually(waiting_for, 30) == Waiting("signal", "go")
        job = await handle.job()
        assert sorted(step.name for step in job.steps if step.kind == "step") == ["a", "b"], "some run side by side"
        assert {line.outcome for line in job.history} == {"failed", "snoozed", "suspended"}
        assert await app.signal("go", {"by": "ann"}) == 1
        assert await handle.result(30) == ["mine", {"by": "ann"}]
    assert [(tmp_path / name).read_text() for name in "ab"] == [".", "."]


@pytest.mark.parametrize("task", [tasks.beside_a_wait, tasks.beside_a_failure], ids=["wait", "failure"])
async def test_a_step_beside_what_ends_the_run_of_a_child_runs_once(app, tmp_path, task):
    handle = await task.enqueue(str(tmp_path))

    async def remembered():
        return [step for step in (await handle.job()).steps if step.kind == "step"]

    async with working(app):
        await eventually(remembered, 30)
        await app.signal("go", "fine")
        assert await handle.result(30) == "fine"
    assert (tmp_path / "a").read_text() == "."


async def test_a_wait_of_a_child_ends_in_time(app):
    handle = await tasks.hurried.enqueue()
    async with working(app):
        assert await handle.result(30) == "signal 'never' did not arrive before its timeout"
