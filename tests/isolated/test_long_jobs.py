"""Jobs that hold the GIL for many leases, and hosts that die."""

import shutil
from pathlib import Path

import pytest

from support.terminal import kill

HERE = Path(__file__).parent


@pytest.fixture
def shop(terminal):
    shutil.copy(HERE / "isolated_jobs.py", terminal.folder / "isolated_jobs.py")
    return terminal


@pytest.mark.parametrize("task", ["hold_the_gil", pytest.param("hold_the_workers_gil", marks=pytest.mark.extended)])
def test_a_job_that_computes_in_c_for_many_leases_runs_once(shop, task):
    shop("worker", "start", "-A", "isolated_jobs:app", "--lease", "2", "--count", "2")
    shop("enqueue", "--id", "x", "--task", task, "--args", '[7, "runs"]')
    shop.until(lambda: shop.job("x")["state"] == "succeeded", 30)
    job = shop.job("x")
    assert (job["result"], job["attempt"], job["fence"]) == ("done", 1, 1)
    assert (shop.folder / "runs").read_text() == "run\n"
    shop("worker", "stop")
    assert shop.process_table() == {}


def test_parent_and_child_killed_on_one_host_and_the_job_runs_on_another(shop):
    shop("worker", "start", "-A", "isolated_jobs:app", "--lease", "1.5")
    shop("enqueue", "--id", "x", "--task", "hold_the_gil", "--args", '[3, "runs"]', "--max-retries", "3")
    shop.until((shop.folder / "runs").exists)
    job = shop.job("x")
    [worker] = shop.workers()
    assert job["pid"] != worker["pid"]
    for pid in (*shop.supervisors(), worker["pid"], job["pid"]):
        kill(pid)
    # "Another host": another state folder, so that it knows nothing of the first one's processes.
    shop.env["XDG_STATE_HOME"] = str(shop.folder / "state" / "other")
    shop("worker", "start", "-A", "isolated_jobs:app", "--lease", "1.5")
    shop.until(lambda: shop.job("x")["state"] == "succeeded", 30)
    job = shop.job("x")
    assert (job["attempt"], job["history"][0]["outcome"]) == (2, "lost")
    assert (shop.folder / "runs").read_text() == "run\nrun\n"
    shop("worker", "stop")
    shop.until(lambda: not shop.workers(), 10)
    assert shop.process_table() == {}


@pytest.mark.extended
def test_a_job_that_deafens_its_worker_is_ended_by_its_timeout(shop):
    shop("worker", "start", "-A", "isolated_jobs:app", "--lease", "1")
    shop("enqueue", "--id", "x", "--task", "hold_the_workers_gil", "--args", '[300, "runs"]', "--timeout", "1",
         "--max-retries", "1")  # fmt: skip
    shop.until(lambda: shop.job("x")["state"] == "dead", 40)
    assert "lost: worker" in shop.job("x")["error"]
    shop("worker", "stop")
