"""`holdfast doctor` on a full disk."""

import shutil

from holdfast.store.sqlite import SqliteStore
from holdfast.testing.verbs import enqueue
from support.limited import Limited


async def findings(path):
    return {finding.what: finding.fine for finding in await SqliteStore(path).examine()}


async def test_a_sound_store_takes_a_small_write(store, path):
    await enqueue(store)
    found = await findings(path)
    assert found["a test write was committed"]
    assert all(found.values())


async def test_a_full_disk_does_not_ask_for_a_backup(path):
    store = SqliteStore(path)
    await store.open()
    await store.close()
    limited = Limited()
    limited.kill()
    try:
        first, room = await SqliteStore(path).examine()
    finally:
        limited.start()
    assert (first.fine, first.advice) == (False, "the disk may be full or failing: free space first")
    assert "free on the disk of" in room.what


async def test_a_disk_that_takes_no_write_is_reported(store, path):
    await enqueue(store)
    limited = Limited()
    limited.kill()
    try:
        found = await findings(path)
    finally:
        limited.start()
    [failed] = [what for what, fine in found.items() if not fine]
    assert failed.startswith("a test write failed: ")
    assert "nothing was written" in failed


async def test_a_disk_that_is_almost_full_is_reported(store, path, monkeypatch):
    usage = shutil.disk_usage(path.parent)._replace(free=3_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    assert (await findings(path))[f"3 MB are free on the disk of {path.parent}"] is False
