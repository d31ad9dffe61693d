"""Real processes on one folder: eight at once on a bucket that does not exist yet, and one that sleeps too long."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from bucket_main import SHORT, sleepy

from holdfast import Holdfast, StoreUnavailable
from holdfast.store.bucket import BucketStore
from holdfast.store.bucket.folder import Folder
from holdfast.store.bucket.thread import EngineRun
from holdfast.testing.build import new_job
from holdfast.testing.verbs import insert
from support.eventually import eventually
from support.failing import Failing

MAIN = Path(__file__).parent / "bucket_main.py"
ROUNDS = int(os.environ.get("HOLDFAST_ROUNDS", "2"))


def start(*words):
    return subprocess.Popen(
        [sys.executable, str(MAIN), *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def said(processes):
    lines = []
    for process in processes:
        output, trouble = process.communicate(timeout=90)
        assert process.returncode == 0, trouble
        lines += output.split()
    return lines


@pytest.mark.extended
def test_eight_processes_on_a_bucket_that_does_not_exist_yet(tmp_path):
    url = f"file://{tmp_path}/new/bucket"
    acknowledged = said([start("enqueue", url, f"p{n}", 50) for n in range(8)])
    assert len(set(acknowledged)) == len(acknowledged) == 400
    done = said([start("consume", url, f"c{n}") for n in range(8)])
    assert Counter(done) == Counter(acknowledged)


@pytest.mark.extended
@pytest.mark.parametrize("turn", range(ROUNDS))
async def test_a_process_stopped_across_a_cleaning_loses_nothing(tmp_path, turn):
    """Another process writes its number, and a cleaning deletes that entry, before it continues."""
    path = str(tmp_path / "bucket")
    process = start("sleepy", path, "stopped", 40)
    acknowledged = [process.stdout.readline().strip() for _ in range(3 + turn)]
    process.send_signal(signal.SIGSTOP)
    bucket = Folder(path)
    reached = max(int(each.key[4:]) for each in await bucket.list("log/"))
    other = BucketStore(bucket, SHORT)
    await other.open()
    deadline = time.monotonic() + 60
    n = 0
    while [each for each in await bucket.list("log/") if int(each.key[4:]) <= reached + 1]:
        assert time.monotonic() < deadline, "the log is never cleaned"
        n += 1
        await insert(other, new_job(f"other-{n}"))
        await asyncio.sleep(0.02)
    process.send_signal(signal.SIGCONT)
    output, trouble = await asyncio.to_thread(process.communicate, timeout=60)
    assert process.returncode == 0, trouble
    acknowledged += output.split()
    assert len(acknowledged) == 40
    found = await other.get(acknowledged)
    await other.close()
    assert [id for id, record in zip(acknowledged, found, strict=True) if record is None] == []


async def test_what_is_left_by_a_process_that_was_killed_is_no_part_of_the_queue(tmp_path):
    """A file that was being written when its process died is aside, and stays there."""
    store = sleepy(str(tmp_path / "bucket"))
    await store.open()
    await insert(store, new_job("a"))
    (tmp_path / "bucket" / ".aside" / "4711-1").write_bytes(b'{"v":1,"non')
    await store.close()
    again = sleepy(str(tmp_path / "bucket"))
    await again.open()
    assert [record.id for record in await again.get(["a"]) if record] == ["a"]
    await again.close()


async def test_an_app_whose_bucket_is_joined_and_cannot_be_read_leaves_no_thread(tmp_path):
    store = Failing(BucketStore(Folder(str(tmp_path))))
    store.calls_left = 0
    before = set(threading.enumerate())
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await Holdfast(store).open()
    await eventually(lambda: {each for each in threading.enumerate() if each.name == "holdfast-bucket"} <= before)


async def test_an_open_that_is_given_up_before_its_thread_has_begun_leaves_no_thread(tmp_path, monkeypatch):
    begins, run = threading.Event(), EngineRun._run
    monkeypatch.setattr(EngineRun, "_run", lambda started: begins.wait() and run(started))
    opening = asyncio.create_task(BucketStore(Folder(str(tmp_path))).open())
    await asyncio.sleep(0)
    opening.cancel()
    await asyncio.sleep(0)
    begins.set()
    await asyncio.wait_for(asyncio.wait([opening]), 90)
    assert opening.cancelled()
