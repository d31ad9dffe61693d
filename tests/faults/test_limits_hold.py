"""Limits under kill -9: no key runs or starts more jobs than its limit allows, and all jobs end."""

from __future__ import annotations

import os
from collections import Counter

import pytest
from support.limited_main import RUNNING, build
from support.until import until

from holdfast.app import parts_of
from holdfast.core.job import TERMINAL, Record
from holdfast.core.operations import Where
from holdfast.sync.blocking import runs_on
from holdfast.testing.history import JournalFile, Terms, acknowledged, check, final, read
from holdfast.views import split_holder
from support.inside import session_of

WORKERS = 3
KILLS = int(os.environ.get("HOLDFAST_ROUNDS", "2"))
"""20 is what the promise is held to."""
KEYS = 6
LIMITED, RATED = 60 * KEYS, 5 * KEYS
LONG = 0.3
"""Seconds that every fifth job takes, so that keys are full."""


@pytest.mark.timeout(300 + 10 * KILLS)
def test_limits_are_kept_when_workers_die(store_url, processes, tmp_path, gates, chance):
    journal = tmp_path / "journal"
    app = build(store_url, str(journal))
    run = runs_on(parts_of(app).runtime)
    with app.sync as sync:
        lasting = [LONG if n % 5 == 0 else chance.uniform(0, 0.04) for n in range(LIMITED)]
        limited = parts_of(app).registry.tasks["limited"]
        calls = [(limited, n % KEYS, seconds) for n, seconds in enumerate(lasting)]
        calls += [(parts_of(app).registry.tasks["rated"], n % KEYS) for n in range(RATED)]
        chance.shuffle(calls)
        ids = [handle.id for handle in sync.enqueue_many(calls)]
        journalled = JournalFile(journal)
        journalled.write(*(acknowledged(id, expect="succeeded") for id in ids))
        most: Counter[str] = Counter()

        def running() -> list[Record]:
            """What runs, all at one moment."""
            found = run(session_of(app).store.find, Where(states=("running",)), None, 1000).records
            for limit_key, count in Counter(
                one.limit_key.name for one in found if one.limit_key and one.limit_key.concurrency
            ).items():
                most[limit_key] = max(most[limit_key], count)
            return found

        def left() -> int:
            running()
            return sum(count for state, count in sync.stats().counts.items() if state not in TERMINAL)

        def holders(of: list[str]) -> list[str]:
            """Who runs these jobs, if all of them run."""
            found = {record.id: record.holder for record in running()}
            return [found[id] for id in of] if all(id in found for id in of) else []

        workers = [processes.start("limited_main") for _ in range(WORKERS)]
        for kill in range(KILLS):
            # Somewhere within what is left to do: the other jobs go on meanwhile.
            goal = len(ids) * (KILLS - kill) // (KILLS + 1)
            until(lambda goal=goal: left() <= goal, f"{goal} jobs are left", 60)
            # As many as a key may run, which run until the kill: however slow this process is, it meets them.
            lasting = [(limited, kill % KEYS, 0, kill)] * RUNNING
            held = [handle.id for handle in sync.enqueue_many(lasting)]
            journalled.write(*(acknowledged(id, expect="succeeded") for id in held))
            pid = split_holder(until(lambda held=held: holders(held), f"the jobs {held} run", 60)[0])[1]
            victim = next(one for one in workers if one.pid == pid)
            victim.kill()
            gates.open(kill)
            ids += held
            workers[workers.index(victim)] = processes.start("limited_main")
        until(lambda: left() == 0, "all jobs have ended", 60)
        records = run(session_of(app).store.get, ids)
        processes.close()
    assert max(most.values()) == RUNNING, f"never full, so nothing was shown; or more than full: {most}"
    journalled.write(*final(records))
    verdict = check(
        read(journal), Terms(runs=False, all_recorded="sweeps" not in parts_of(app).runtime._store.features)
    )
    verdict.demand()
    lost = sum(line.outcome == "lost" for record in records for line in record.history)
    print(f"{verdict.explain()}; {lost} claims were lost under {KILLS} kills")
    assert lost, "no kill met a job that ran: this run has shown nothing"
