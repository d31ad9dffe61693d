"""The plan of a seed: everything in it is drawn from that one number."""

from __future__ import annotations

from random import Random

import msgspec

from .features import with_feature
from .plan import KINDS, Deed, Fault, Plan, PlannedJob, Rates

FEATURE_EVERY = 3
"""Of so many seeds, one has a feature beside its plain jobs."""


def draw(seed: int, place: str = "server") -> Plan:
    """The plan of a seed."""
    chance, bucket = Random(seed), place == "bucket"
    poisonous = chance.random() < 0.15
    producers, workers = chance.randint(1, 2), chance.randint(1, 3)
    calm_at = chance.uniform(3.0, 12.0 if bucket else 9.0)
    count = chance.randint(1, 7)
    keys = [f"key-{n}" for n in range(max(1, count // 2))]
    jobs = [_job(chance, producers, calm_at, keys) for _ in range(count)]
    if poisonous:
        jobs = [
            *(msgspec.structs.replace(job, max_attempts=0, kind="slow") for job in jobs),
            PlannedJob(chance.uniform(0.0, 1.0), 0, "poison"),
        ]
    few = 1 if poisonous else 4
    longest = 12.0 if bucket else 6.0  # asleep while others clean up behind it
    faults = tuple(_fault(chance, workers, producers, calm_at, longest) for _ in range(chance.randint(0, few)))
    deeds = tuple(_deed(chance, calm_at) for _ in range(0 if poisonous else chance.randint(0, 3)))
    bad = chance.random() < 0.7 and not poisonous
    rates = (_bucket_rates(chance) if bucket else _rates(chance)) if bad else Rates()
    skews = tuple(chance.choice((0.0, 0.0, 3600.0, -3600.0)) for _ in range(workers + producers))
    if bucket and chance.random() < 0.5:  # with one time for all, more rules can be held to
        skews = (0.0,) * len(skews)
    plan = Plan(
        seed, chance.getrandbits(32), producers, workers, chance.randint(1, 4), skews, tuple(jobs), faults, deeds,
        rates, chance.random() < 0.2 and not bucket, poisonous, calm_at, place,
    )  # fmt: skip
    return plan if poisonous or seed % FEATURE_EVERY else with_feature(chance, plan)


def _job(chance: Random, producers: int, calm_at: float, keys: list[str]) -> PlannedJob:
    identity = chance.random()
    return PlannedJob(
        chance.uniform(0.0, calm_at * 0.8),
        chance.randrange(producers),
        chance.choice(KINDS) if chance.random() < 0.6 else "ok",
        chance.choice((0, 0, 0, -1, 1)),
        chance.choice((0.0, 0.0, 0.0, chance.uniform(0.0, 3.0))),
        chance.choice(keys) if identity < 0.35 else "",
        0.35 <= identity < 0.6,
        chance.choice((0, 0, 0, 1, 2, 3)),
        chance.choice((1, 1, 1, 3)) if identity >= 0.6 else 1,
    )


def _fault(chance: Random, workers: int, producers: int, calm_at: float, longest: float) -> Fault:
    at = chance.uniform(0.1, calm_at)
    what = chance.choice(("kill", "kill", "stop", "stop", "restart", "term"))
    if what == "kill":
        who = chance.randrange(workers + producers)
        return Fault("kill", who, at) if chance.random() < 0.4 else Fault("kill", who, step=chance.randrange(400))
    if what == "stop":
        return Fault("stop", chance.randrange(workers + producers), at, seconds=chance.uniform(0.5, longest))
    if what == "restart":
        return Fault("restart", at=at, seconds=chance.choice((0.0, 0.2, chance.uniform(0.0, 5.0))))
    return Fault("term", chance.randrange(workers), at)


def _deed(chance: Random, calm_at: float) -> Deed:
    what = chance.choice(("cancel", "cancel", "retry", "delete", "pause", "by_hand", "by_hand", "vanish"))
    return Deed(what, chance.uniform(0.2, calm_at))


def _rates(chance: Random) -> Rates:
    def rate() -> float:
        return chance.choice((0.0, 0.02, 0.1, 0.3))

    return Rates(rate(), rate(), rate(), rate() / 3, chance.choice((0.0, 0.05)))


def _bucket_rates(chance: Random) -> Rates:
    def rate() -> float:
        return chance.choice((0.0, 0.02, 0.06, 0.15))

    return Rates(
        rate(), rate(), rate(), rate(), chance.choice((0.0, 0.05)), cut=rate() / 2, conflict=rate(), exists=rate()
    )
