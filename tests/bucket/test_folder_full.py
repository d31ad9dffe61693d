"""A folder on a full disk: errors are true, nothing is half written, and writes work again when there is space."""

from __future__ import annotations

import asyncio
import errno
import os
from contextlib import suppress
from pathlib import Path

import pytest
from alone import opened, virtually
from delayed import Delayed, InMemory

from holdfast.core.clock import SystemClock
from holdfast.core.errors import StoreUnavailable
from holdfast.store.bucket.protocol import NotWritten
from holdfast.store.open import open_store
from holdfast.testing.build import new_job
from holdfast.testing.verbs import enqueue, gone, insert
from support.limited import Limited
from support.outage import outlasted
from support.small_disk import needs_small_disk, run_on_small_disk

MAIN = Path(__file__).with_name("full_main.py")


@needs_small_disk
@pytest.mark.parametrize("stores", [1, 4])
def test_a_full_disk(tmp_path, stores):
    assert "No space left on device; nothing was written" in run_on_small_disk(MAIN, tmp_path, stores)


async def test_a_job_outlasts_a_disk_that_is_full_for_longer_than_its_lease(tmp_path):
    limited = Limited()
    try:
        job = await outlasted(f"file://{tmp_path}/jobs", limited)
    finally:
        limited.start()
    assert (job.attempt, job.result) == (1, "kept")


async def test_a_full_folder_is_reported_at_once(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    store = open_store(f"file://{tmp_path}/jobs", SystemClock())
    await store.open()
    await enqueue(store, "before")
    with monkeypatch.context() as patched:
        patched.setattr(os, "link", full)
        with pytest.raises(StoreUnavailable, match="No space left on device; nothing was written"):
            await insert(store, new_job("refused"))
    await enqueue(store, "after")
    assert await gone(store, "refused")
    await store.close()


async def test_doctor_blames_the_disk(tmp_path):
    store = open_store(f"file://{tmp_path}/jobs", SystemClock())
    await store.open()
    await enqueue(store, "before")
    limited = Limited()
    limited.kill()
    try:
        written, room = await store.examine()
    finally:
        limited.start()
    assert not written.fine
    assert "nothing was written" in written.what
    assert written.advice.startswith("free disk space")
    assert "free on the disk of" in room.what
    assert all(finding.fine for finding in await store.examine())
    await store.close()


class Full(InMemory):
    is_full = False

    async def put_if_absent(self, key, data):
        if self.is_full:
            raise NotWritten("No space left on device; nothing was written")
        return await super().put_if_absent(key, data)


def test_a_losing_writer_on_a_full_disk_gets_nothing_was_written():
    """It cannot write its batch to the inbox either."""

    async def story(clock):
        bucket = Full(clock)
        quick, slow = Delayed(bucket, 0.05), Delayed(bucket, 0.2)
        async with opened(quick, clock) as winner, opened(slow, clock) as loser:

            async def win():
                while not bucket.is_full:
                    await insert(winner, new_job())

            winning = asyncio.gather(win(), win(), win())
            losing = loser._shared.engine._writer._would_lose
            async with asyncio.timeout(60):
                while not losing():
                    await insert(loser, new_job())
            bucket.is_full = True
            with pytest.raises(StoreUnavailable, match="nothing was written"):
                await insert(loser, new_job("late"))
            with suppress(StoreUnavailable):
                await winning
            bucket.is_full = False
            assert await gone(winner, "late")

    virtually(story)
