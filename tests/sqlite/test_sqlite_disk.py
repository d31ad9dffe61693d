"""A disk that is full or fails: nothing is half written, and the store works again when there is space."""

import os
import shutil
import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, resource, signal, sys, os
from holdfast.core.errors import OutcomeUnknown, StoreUnavailable
from holdfast.store.protocol import Batch
from holdfast.store.sqlite import SqliteStore
from holdfast.testing.build import new_job
from holdfast.testing.verbs import enqueue, every, gone

async def fill(store):
    done = 0
    while True:
        try:
            await store.write(Batch(inserts=[new_job(f"job-{done}", payload=b"x" * 2000), new_job(f"twin-{done}")]))
        except StoreUnavailable as error:
            print("refused", error)
            return done
        done += 1

async def main(path, make_room):
    store = SqliteStore(path)
    await store.open()
    done = await fill(store)
    assert done > 10, done
    assert await gone(store, f"job-{done}") and await gone(store, f"twin-{done}")
    again = await fill(store)
    assert again == 0 or await gone(store, f"job-{again}")
    make_room()
    await enqueue(store, "after")
    assert len(await every(store, page=500)) == 2 * done + 1
    await store.close()
    print("recovered")
"""
LIMITED_FILE = (
    PROGRAM
    + """
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, resource.RLIM_INFINITY))
room = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
asyncio.run(main(sys.argv[1], room))
"""
)
SMALL_DISK = (
    PROGRAM
    + """
folder = sys.argv[1]
ballast = open(f"{folder}/ballast", "wb")
ballast.write(bytes(500_000))
ballast.close()
asyncio.run(main(f"{folder}/jobs.db", lambda: os.unlink(f"{folder}/ballast")))
"""
)


def can_mount():
    command = ["unshare", "-rm", "true"]
    return shutil.which("unshare") and subprocess.run(command, check=False, capture_output=True).returncode == 0


def test_a_file_that_may_not_grow(path, python):
    process = python(LIMITED_FILE, path)
    out, _ = process.communicate(timeout=100)
    assert process.returncode == 0, out
    assert out.splitlines()[-1] == "recovered"
    assert "nothing was written" in out


@pytest.mark.skipif(not can_mount(), reason="needs user namespaces")
def test_a_full_disk(tmp_path):
    (tmp_path / "program.py").write_text(SMALL_DISK)
    disk = tmp_path / "disk"
    disk.mkdir()
    command = f'mount -t tmpfs -o size=2m tmpfs "{disk}" && exec "{sys.executable}" "{tmp_path}/program.py" "{disk}"'
    ran = subprocess.run(
        ["unshare", "-rm", "sh", "-c", command],
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
        env=os.environ | {"PYTHONPATH": "src"},
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.splitlines()[-1] == "recovered"
    assert "the disk is full" in ran.stdout
