"""`python -m lab …`: look for broken promises. Figures add up in `lab/results/` over several runs."""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path
from random import randrange

from .failover import KINDS as FAILOVERS
from .machine import CASES
from .real.places import PLACES
from .sim.plan import PLACES as SIMULATED


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m lab", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    sim = commands.add_parser("sim", help="deterministic simulation of the core on a bad network")
    sim.add_argument("--on", choices=SIMULATED, default="server", help="the reference store, or the bucket's own code")
    sim.add_argument("--count", type=int, default=1_000_000, help="schedules at the most")
    sim.add_argument("--minutes", type=float, help="stop after so long")
    sim.add_argument("--start", type=int, help="the first seed (default: on from the last run, and add up)")
    sim.add_argument("--failures", type=int, default=5, help="stop after so many")
    sim.add_argument("--seed", type=int, help="replay this one alone")
    sim.add_argument("--plan", help="replay a plan, as a failure printed it")
    sim.add_argument("--shrink", action="store_true", help="look for the smallest plan that fails")
    real = commands.add_parser("run", help="real faults on a real store")
    real.add_argument("store", type=_store, help=f"{', '.join(PLACES)}; or your own: redis://host/?prefix=lab{{round}}")
    real.add_argument("--minutes", type=float, default=5.0)
    real.add_argument("--seed", type=int, help="what goes wrong, and when; the processes go on as they will")
    real.add_argument(
        "--features", action="store_true", help="rounds of flows, limits, signals, pauses, schedules and cancels"
    )
    machine = commands.add_parser("machine", help="the conformance suite's state machine, for long")
    machine.add_argument("store", choices=CASES)
    machine.add_argument("--minutes", type=float, default=30.0)
    mutants = commands.add_parser("mutants", help="plant defects in a copy of the source, and see them caught")
    mutants.add_argument("--only", default="", help="only those with this in their file, their words or their test")
    mutate = commands.add_parser(
        "mutate", help="generate small defects by rule, and see them caught by their area's tests"
    )
    mutate.add_argument("--seed", type=int, default=18, help="which mutants")
    mutate.add_argument("--count", type=int, default=400, help="mutants, evenly over the areas")
    mutate.add_argument("--area", default="", help="only areas with this in their name")
    mutate.add_argument("--jobs", type=int, default=1, help="mutants at the same time")
    mutate.add_argument("--results", type=Path, help="where results are kept (default: lab/results/mutate.json)")
    mutate.add_argument(
        "--again", choices=("all", "survived", "timeout"), default="", help="plant again what is known already"
    )
    fuzz = commands.add_parser("fuzz", help="messages to the store API over HTTP that no Holdfast would send")
    fuzz.add_argument("--count", type=int, default=10_000, help="messages, by tokens of each role")
    fuzz.add_argument("--seed", type=int, help="which messages (default: by chance)")
    fuzz.add_argument("--url", help="the store behind the server (default: an SQLite file of its own)")
    quarantine = commands.add_parser(
        "quarantine", help="how long the jobs take that were in flight when their worker died"
    )
    quarantine.add_argument("--jobs", type=int, default=50)
    quarantine.add_argument("--seconds", type=float, default=0.2, help="for which each job runs")
    quarantine.add_argument("--lease", type=float, default=1.5)
    quarantine.add_argument("--url", help="the store (default: an SQLite file of its own)")
    failover = commands.add_parser("failover", help="a Redis store whose primary is replaced, or whose slot moves")
    failover.add_argument("kind", choices=FAILOVERS)
    failover.add_argument("--times", type=int, default=3)
    failover.add_argument("--durability", default="none", help="as in the URL of a store")
    failover.add_argument("--server", help="the server's binary (default: Valkey, as the tests have it)")
    programs = commands.add_parser("programs", help="one app in every kind of program and web server")
    programs.add_argument("--on", action="append", choices=("sqlite", "postgres", "redis"), help="only these stores")
    programs.add_argument("--only", default="", help="only programs with this in their name")
    programs.add_argument("--count", type=int, default=10_000, help="enqueues by each")
    everything = commands.add_parser(
        "all", help="the simulation, every store and its state machine, and the planted defects"
    )
    everything.add_argument("--minutes", type=float, default=30.0, help="for each of them")
    commands.add_parser("report", help="write the figures into docs/explain/reliability.md and lab/results/README.md")
    given = parser.parse_args()
    if given.command not in ("sim", "report") and find_spec("pytest") is None:
        parser.error(f"`{given.command}` needs the packages and servers of the tests: make venv installs them")
    return _do(given)


def _store(word: str) -> str:
    if word not in PLACES and "://" not in word:
        raise argparse.ArgumentTypeError(f"{word!r} is none of {', '.join(PLACES)}, and no URL")
    return word


def _do(given: argparse.Namespace) -> int:
    from . import failover, machine, report
    from .mutants import command as mutants
    from .real import command as real
    from .sim import command as sim

    if given.command == "sim" and (given.seed is not None or given.plan is not None):
        return sim.one(given.seed or 0, given.on, smaller=given.shrink, plan=given.plan)
    if given.command == "sim":
        return sim.run(given.on, given.count, given.minutes, given.start, given.failures)
    if given.command == "run":
        return real.run(given.store, given.minutes, given.seed, features=given.features)
    if given.command == "machine":
        return machine.run(given.store, given.minutes)
    if given.command == "mutants":
        return mutants.run(given.only)
    if given.command == "mutate":
        from .mutation import command as mutate

        results = given.results or mutate.RESULTS
        return mutate.run(given.seed, given.count, given.jobs, given.area, results, again=given.again)
    if given.command == "fuzz":
        from . import fuzz  # needs the packages of the server

        return fuzz.command(given.count, given.seed if given.seed is not None else randrange(2**32), given.url)
    if given.command == "quarantine":
        from . import quarantine

        return quarantine.command(given.url, given.jobs, given.seconds, given.lease)
    if given.command == "failover":
        return failover.run(given.kind, {"durability": given.durability}, given.times, given.server)
    if given.command == "programs":
        from .programs import command as programs

        cases = [name for name in programs.NAMES if given.only in name]
        return programs.matrix(given.on or list(programs.STORES), cases, given.count)
    if given.command == "report":
        return report.run()
    broken = sum(sim.run(place, 1_000_000, given.minutes, None, 5) for place in SIMULATED)
    for store in PLACES:
        broken += real.run(store, given.minutes)
        broken += machine.run(store, given.minutes)
    return min(1, broken + mutants.run())


if __name__ == "__main__":
    sys.exit(main())
