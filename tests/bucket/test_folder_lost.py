"""A folder that is deleted, emptied or replaced while a store has it open."""

import errno
import shutil

import pytest

from holdfast import StoreLost, StoreUnavailable
from holdfast.core.clock import SystemClock
from holdfast.store.open import open_store
from holdfast.testing.verbs import enqueue, every
from support.unseen import PASSING, unseen


def delete(folder):
    shutil.rmtree(folder)


def empty(folder):
    for each in folder.iterdir():
        shutil.rmtree(each)


def replace(folder):
    folder.rename(folder.with_name("old"))
    shutil.copytree(folder.with_name("old"), folder)


@pytest.mark.parametrize("harm", [delete, empty, replace])
async def test_a_missing_folder_accepts_no_write(tmp_path, harm):
    store = open_store(f"file://{tmp_path}/jobs", SystemClock())
    await store.open()
    await enqueue(store, "before")
    harm(tmp_path / "jobs")
    with pytest.raises(StoreLost, match="while this process had it open; nothing was written"):
        await enqueue(store, "after")
    with pytest.raises(StoreLost):
        await every(store)
    await store.close()


@pytest.mark.parametrize("number", PASSING, ids=errno.errorcode.get)
async def test_a_folder_that_cannot_be_read_for_a_while_is_not_lost(tmp_path, number):
    store = open_store(f"file://{tmp_path}/jobs", SystemClock())
    await store.open()
    await enqueue(store, "before")
    with unseen("jobs", number):
        with pytest.raises(StoreUnavailable, match=r"cannot be accessed: .*; nothing was written") as raised:
            await enqueue(store, "refused")
        assert not isinstance(raised.value, StoreLost)
    await enqueue(store, "after")
    assert {record.id for record in await every(store)} == {"before", "after"}
    await store.close()
