"""A folder that is deleted, emptied or replaced while a store has it open."""

import shutil

import pytest

from holdfast import StoreLost
from holdfast.clock import SystemClock
from holdfast.store.open import open_store
from holdfast.testing.verbs import enqueue, every


def delete(folder):
    shutil.rmtree(folder)


def empty(folder):
    for each in folder.iterdir():
        shutil.rmtree(each)


def replace(folder):
    folder.rename(folder.with_name("old"))
    shutil.copytree(folder.with_name("old"), folder)


@pytest.mark.parametrize("harm", [delete, empty, replace])
async def test_a_folder_that_is_no_longer_there_takes_no_write(tmp_path, harm):
    store = open_store(f"file://{tmp_path}/jobs", SystemClock())
    await store.open()
    await enqueue(store, "before")
    harm(tmp_path / "jobs")
    with pytest.raises(StoreLost, match="while this process had it open; nothing was written"):
        await enqueue(store, "after")
    with pytest.raises(StoreLost):
        await every(store)
    await store.close()
