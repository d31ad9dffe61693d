"""A disk that fails to sync: what could not be made durable is not believed, and is reported as such."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from lab.real.disk import Disk

from holdfast.store.sqlite import SqliteStore
from holdfast.testing.verbs import every

ROOT = Path(__file__).resolve().parents[2]
FOLDER = """
import asyncio, sys
from holdfast.store.bucket.folder import Folder

async def main(path):
    folder = Folder(path)
    folder.make()
    assert await folder.put_if_absent("log/1", b"one")
    print("ready", flush=True)
    input()
    for attempt in (folder.put_if_absent("log/2", b"two"), folder.get("log/2"), folder.get("log/1")):
        try:
            print(await attempt)
        except Exception as error:
            print(type(error).__name__)
    sys.stdout.flush()
    input()
    print(await folder.get("log/2"))

asyncio.run(main(sys.argv[1]))
"""
SQLITE = """
import asyncio, os, sys
from holdfast.core.errors import HoldfastError
from holdfast.store.sqlite import SqliteStore
from holdfast.testing.verbs import enqueue

async def main(path):
    store = SqliteStore(path)
    await store.open()
    await enqueue(store, "before")
    print("ready", flush=True)
    input()
    try:
        await enqueue(store, "meanwhile")
    except HoldfastError as error:
        print(type(error).__name__, flush=True)
    os.kill(os.getpid(), 9)

asyncio.run(main(f"{sys.argv[1]}/jobs.db"))
"""


@pytest.fixture
def disk():
    disk = Disk()
    if not disk.can_fail:
        pytest.skip("needs Linux and a C compiler, for a library that makes fsync fail")
    yield disk
    disk.remove()


def said_on_a_bad_disk(program, lines, folder, disk, which="all"):
    """What a program prints while syncs fail, in so many lines, and after."""
    with subprocess.Popen(
        [sys.executable, "-c", program, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | disk.env | {"PYTHONPATH": str(ROOT / "src")},
    ) as process:
        assert process.stdout.readline() == "ready\n"
        with disk.failing(which):
            process.stdin.write("\n")
            process.stdin.flush()
            said = "".join(process.stdout.readline() for _ in range(lines))
        rest, _ = process.communicate("\n", timeout=30)
    assert process.returncode in (0, -signal.SIGKILL)
    assert disk.failures() > 0
    return (said + rest).splitlines()


def test_a_folder_reads_no_name_that_may_not_be_on_the_disk(disk, tmp_path):
    said = said_on_a_bad_disk(FOLDER, 3, tmp_path, disk, "folders")
    assert said == ["OSError", "OSError", "OSError", "b'two'"]


def test_a_file_of_a_folder_that_cannot_be_synced_was_not_written(disk, tmp_path):
    said = said_on_a_bad_disk(FOLDER, 3, tmp_path, disk)
    assert said == ["NotWritten", "None", "b'one'", "None"]


async def jobs(path):
    store = SqliteStore(str(path))
    await store.open()
    try:
        return {record.id for record in await every(store)}
    finally:
        await store.close()


async def test_what_sqlite_could_not_sync_and_calls_unwritten_is_not_there_after_a_crash(disk, tmp_path):
    """The frames of the failed commit stand in the log, whole: they must have been overwritten."""
    assert said_on_a_bad_disk(SQLITE, 1, tmp_path, disk, "once") == ["StoreUnavailable"]
    assert await jobs(tmp_path / "jobs.db") == {"before"}


async def test_what_sqlite_can_neither_sync_nor_take_back_is_called_unknown(disk, tmp_path):
    assert said_on_a_bad_disk(SQLITE, 1, tmp_path, disk) == ["OutcomeUnknown"]
    assert {"before"} <= await jobs(tmp_path / "jobs.db") <= {"before", "meanwhile"}
