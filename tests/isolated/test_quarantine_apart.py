"""Under a supervisor a quarantined job gets a fresh process: alone in it, and in nobody's way."""

import contextlib
import shutil
import sqlite3
from pathlib import Path

import pytest

from holdfast import Holdfast
from support.terminal import kill

HERE = Path(__file__).parent


@pytest.fixture
def shop(terminal):
    shutil.copy(HERE / "quarantined_jobs.py", terminal.folder / "quarantined_jobs.py")
    return terminal


def enqueue(shop, id, task, *args):
    shop.store.submit(task, args[0] if args else b"{}", json=True, id=id)


def test_jobs_whose_worker_was_killed_run_again_side_by_side_each_in_its_own_process(shop):
    for number in range(4):
        enqueue(shop, f"w{number}", "wait_for", b'{"name": "go"}')
    shop("worker", "start", "-A", "quarantined_jobs:app", "--concurrency", "4")
    ids = [f"w{number}" for number in range(4)]
    shop.until(lambda: all((shop.folder / f"started-{id}").exists() for id in ids))
    [worker] = shop.workers()
    kill(worker["pid"])
    shop.until(lambda: all(shop.job(id)["state"] == "running" and shop.job(id)["fence"] == 2 for id in ids), 30)
    (shop.folder / "go").touch()
    shop.until(lambda: shop.states() == {"succeeded": 4}, 30)
    pids = {shop.job(id)["result"] for id in ids}
    assert len(pids) == 4
    assert worker["pid"] not in pids
    shop("worker", "stop")
    assert shop.process_table() == {}


def test_jobs_in_processes_of_their_own_complete_in_their_own_transactions(shop):
    enqueue(shop, "killed", "save_when", b'{"name": "go"}')
    shop("worker", "start", "-A", "quarantined_jobs:app", "--concurrency", "4")
    shop.until((shop.folder / "started-killed").exists)
    [worker] = shop.workers()
    kill(worker["pid"])
    enqueue(shop, "isolated", "save")
    (shop.folder / "go").touch()
    shop.until(lambda: shop.states() == {"succeeded": 2}, 30)
    shop("worker", "stop")
    pids = {shop.job(id)["result"] for id in ("killed", "isolated")}
    assert len(pids) == 2
    assert worker["pid"] not in pids
    with contextlib.closing(sqlite3.connect(shop.folder / "holdfast.db")) as connection:
        assert {pid for (pid,) in connection.execute("SELECT pid FROM saved")} == pids
        assert connection.execute("SELECT count(*) FROM saved").fetchone() == (2,)


def test_a_pickled_callable_whose_worker_was_killed_runs_again_in_a_process_of_its_own(shop):
    (shop.folder / "pickling.py").write_text(
        "from holdfast import Holdfast\napp = Holdfast('sqlite:///holdfast.db', cloudpickle=True, secret='secret')\n"
    )
    app = Holdfast(f"sqlite:///{shop.folder}/holdfast.db", cloudpickle=True, secret="secret")
    shop("worker", "start", "-A", "pickling:app")

    def waiting():
        async def wait_for(name):
            import asyncio
            import os
            from pathlib import Path

            while not await asyncio.to_thread(Path(name).exists):  # noqa: ASYNC110  # another process makes it
                await asyncio.sleep(0.02)
            return os.getpid()

        return wait_for

    handle = app.sync.enqueue(waiting(), "go")
    shop.until(lambda: shop.job(handle.id)["state"] == "running")
    [worker] = shop.workers()
    kill(worker["pid"])
    shop.until(lambda: (job := shop.job(handle.id))["state"] == "running" and job["fence"] == 2, 30)
    (shop.folder / "go").touch()
    assert handle.result(timeout=30) not in (None, worker["pid"])
    app.sync.close()
    shop("worker", "stop")


def test_a_job_that_kills_its_process_is_set_aside_and_its_neighbours_succeed(shop):
    enqueue(shop, "poison", "kill_my_process")
    for number in range(9):
        enqueue(shop, f"add{number}", "add", b'{"a": 1, "b": 2}')
    shop("worker", "start", "-A", "quarantined_jobs:app")
    shop.until(lambda: shop.states() == {"succeeded": 9, "dead": 1}, 40)
    poison = shop.job("poison")
    assert "quarantined" in poison["error"]
    # The first death was in company and counts for nobody; then three alone.
    assert [line["outcome"] for line in poison["history"]] == ["lost", "lost", "lost", "dead"]
    assert all(shop.job(f"add{number}")["attempt"] <= 2 for number in range(9))
    shop("worker", "stop")
    assert shop.process_table() == {}


def test_the_jobs_of_a_batch_that_killed_its_process_are_reported_apart(shop):
    for number in (2, 3, 4, 13):
        shop.store.submit("halves", f'{{"numbers": {number}}}'.encode(), json=True, id=f"n{number}", max_attempts=4)
    shop("worker", "start", "-A", "quarantined_jobs:app")
    shop.until(lambda: shop.job("n13")["state"] == "dead", 40)
    shop.until(lambda: shop.job("n4")["state"] == "succeeded" and shop.job("n3")["error"] == "ValueError: odd", 30)
    assert "quarantined" in shop.job("n13")["error"]
    assert (shop.job("n2")["result"], shop.job("n4")["result"]) == (1.0, 2.0)
    assert [shop.job(f"n{number}")["history"][0]["outcome"] for number in (2, 3, 4)] == ["lost"] * 3
    shop("worker", "stop")
    assert shop.process_table() == {}
