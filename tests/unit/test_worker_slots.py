"""Slots: what may be claimed, given what runs."""

from holdfast.core.job import Record
from holdfast.worker.run import Run
from holdfast.worker.slots import Slots


def run(id: str, *, quarantined: bool = False) -> Run:
    return Run(
        Record(1, id, "default", "work", "running", 0, 0, b"{}", "json", 5, None, None, 0, quarantined=quarantined)
    )


async def test_a_slot_is_free_again_once_its_run_has_ended():
    slots, one = Slots(2), run("one")
    slots.add(one)
    assert slots.free() == 1
    assert slots.remove(one)
    assert slots.free() == 2


async def test_nothing_is_claimed_beside_a_quarantined():
    slots, quarantined = Slots(8), run("quarantined", quarantined=True)
    slots.add(quarantined)
    assert slots.free() == 0
    slots.remove(quarantined)
    assert slots.free() == 8


async def test_an_end_that_the_store_did_not_take_keeps_its_slot():
    slots = Slots(2)
    slots.owed += 1
    assert slots.free() == 1


async def test_the_runs_of_a_batch_take_one_slot():
    slots, batch, runs = Slots(4), object(), [run(name) for name in "abc"]
    for each in runs:
        each.batch = batch
        slots.add(each)
    assert slots.free() == 3
    for each, free in zip(runs, (3, 3, 4), strict=True):
        slots.remove(each)
        assert slots.free() == free


async def test_a_run_that_was_given_up_is_not_removed_twice():
    slots, one = Slots(2), run("one")
    slots.add(one)
    assert slots.remove(one)
    assert not slots.remove(one)
    assert slots.free() == 2


async def test_a_quarantined_in_a_process_of_its_own_takes_one_slot():
    slots, quarantined = Slots(4, isolate_quarantined=True), run("quarantined", quarantined=True)
    slots.add(quarantined)
    assert slots.free() == 3
    slots.remove(quarantined)
    assert slots.free() == 4


async def test_all_is_quiet_once_nothing_runs_and_nothing_is_to_be_written():
    slots, one = Slots(2), run("one")
    assert not slots
    slots.add(one)
    slots.settling.add(one.key)
    slots.note_quiet()
    assert slots
    slots.remove(one)
    assert slots.freed.is_set()
    slots.note_quiet()
    assert not slots.quiet.is_set()
    slots.settling.clear()
    slots.note_quiet()
    assert slots.quiet.is_set()
