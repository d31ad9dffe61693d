"""A disk that is full or fails: nothing is half written, and the store works again when there is space."""

from support.small_disk import needs_small_disk, run_on_small_disk

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


def test_a_file_that_may_not_grow(path, python):
    process = python(LIMITED_FILE, path)
    out, _ = process.communicate(timeout=100)
    assert process.returncode == 0, out
    assert out.splitlines()[-1] == "recovered"
    assert "nothing was written" in out


@needs_small_disk
def test_a_full_disk(tmp_path):
    (tmp_path / "program.py").write_text(SMALL_DISK)
    disk = tmp_path / "disk"
    disk.mkdir()
    assert "the disk is full" in run_on_small_disk(tmp_path / "program.py", disk)
