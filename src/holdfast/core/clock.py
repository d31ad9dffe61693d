"""Clocks and random values, passed in as arguments: the only module that reads either from the machine."""

from __future__ import annotations

import base64
import os
import random
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Protocol

from .errors import ConfigError

MICROS = 1_000_000
"""Stored times are whole microseconds since 1970, UTC."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Clock(Protocol):
    """Three clocks: wall time (due times), monotonic time (intervals), and time since the machine booted (leases)."""

    def now(self) -> int:
        """Wall-clock time in microseconds."""
        ...

    def monotonic(self) -> float:
        """Seconds that never decrease, for intervals inside one process."""
        ...

    def boot(self) -> int:
        """Microseconds since this machine booted, including sleep: the same in all its processes and namespaces."""
        ...

    def boot_id(self) -> str:
        """Identifies this boot; a reboot changes it."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def __init__(self) -> None:
        # macOS has no CLOCK_BOOTTIME; its CLOCK_MONOTONIC counts sleep and is shared by all processes.
        self._boot_clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
        self._boot_id: str | None = None

    def now(self) -> int:
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        return time.monotonic()

    def boot(self) -> int:
        return (time.clock_gettime_ns(self._boot_clock) - boot_offset()) // 1000

    def boot_id(self) -> str:
        if self._boot_id is None:
            self._boot_id = _read_boot_id()
        return self._boot_id


_MACHINE = "time:[4026531834]"
"""The time namespace that a machine boots with."""


@cache
def boot_offset() -> int:
    """Nanoseconds that the time namespace of this process adds to the time since boot; ConfigError if unknown."""
    try:
        own = os.readlink("/proc/self/ns/time")  # noqa: PTH115  # it is not a path
        of_children = os.readlink("/proc/self/ns/time_for_children")  # noqa: PTH115
        with open("/proc/self/timens_offsets", encoding="ascii") as file:
            lines = [line.split() for line in file]
    except OSError:
        return 0  # a kernel without time namespaces
    if own == _MACHINE:
        return 0
    if own != of_children:
        # The kernel shows the offsets of the namespace that children get, which is not this process's own.
        raise ConfigError(
            "this process is in a nested time namespace and cannot read the time since boot, which leases depend on:"
            " open the store in a child process instead"
        )
    return next((int(line[1]) * 1_000_000_000 + int(line[2]) for line in lines if line[0] in ("boottime", "7")), 0)


os.register_at_fork(after_in_child=boot_offset.cache_clear)


def _read_boot_id() -> str:
    if sys.platform == "darwin":
        import subprocess  # only on macOS, once

        asked = subprocess.run(["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"], capture_output=True, check=False)
        return asked.stdout.decode().strip() or "unknown"
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return "unknown"


class Entropy:
    """Random values from one source that a test can seed."""

    def __init__(self, seed: int | None = None) -> None:
        self._random = random.Random(seed)
        self.fraction: Callable[[], float] = self._random.random
        """A float in [0, 1)."""
        self._millisecond, self._head = -1, ""
        """The beginning of the last UUID: many are made within a millisecond."""

    def token(self) -> int:
        """A random integer that fits a signed 64-bit column and is never 0."""
        return self._random.getrandbits(62) | 1

    def uuid7(self, now: int) -> str:
        """A UUID version 7: ordered by `now` (microseconds), unique by 74 random bits."""
        if now // 1000 != self._millisecond:
            self._millisecond = now // 1000
            head = f"{self._millisecond & 0xFFFFFFFFFFFF:012x}"
            self._head = f"{head[:8]}-{head[8:]}-7"
        bits = self._random.getrandbits(74)
        rest = (bits >> 62, bits >> 48 & 0x3FFF | 0x8000, bits & 0xFFFFFFFFFFFF)
        return self._head + "%03x-%04x-%012x" % rest  # noqa: UP031  # faster than an f-string


def fresh_entropy() -> Entropy:
    """Entropy seeded by the operating system; make one per process, never inherit it through a fork."""
    return Entropy(int.from_bytes(os.urandom(16), "big"))


def fresh_secret() -> str:
    """A random token: 256 bits from the operating system."""
    return base64.urlsafe_b64encode(os.urandom(32)).rstrip(b"=").decode()


def micros(at: datetime) -> int:
    """An aware datetime of any zone as a stored time."""
    since = at - EPOCH
    return (since.days * 86400 + since.seconds) * 1_000_000 + since.microseconds


def moment(micros: int) -> datetime:
    """A stored time as an aware UTC datetime, clamped to the years 1970 to 9999."""
    return EPOCH + timedelta(0, 0, min(max(micros, 0), 253_402_300_799_999_999))
