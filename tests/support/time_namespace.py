"""A process in a time namespace of its own, whose clocks since boot are ahead of the machine's."""

import ctypes
import os
import subprocess
import sys
from functools import cache

import pytest

NEW_USER, NEW_TIME = 0x10000000, 0x80
AHEAD = (100_000, 123_456_789)
"""Seconds and nanoseconds."""


def inside(*command: str) -> list[str]:
    """The command that runs another one in a new time namespace; the test is skipped where there can be none."""
    if (reason := _impossible()) is not None:
        pytest.skip(f"no time namespace can be made here: {reason}")
    return _wrapped(*command)


def _wrapped(*command: str) -> list[str]:
    return [sys.executable, __file__, *command]


@cache
def _impossible() -> str | None:
    if sys.platform != "linux":
        return "only Linux has them"
    tried = subprocess.run(_wrapped("true"), capture_output=True, text=True, check=False)
    return None if tried.returncode == 0 else tried.stderr.strip().splitlines()[-1]


def unshare() -> None:
    """Give this process's children a time namespace of their own."""
    # The user's own namespace lets others than root make one.
    if ctypes.CDLL(None, use_errno=True).unshare(NEW_TIME | (0 if os.getuid() == 0 else NEW_USER)) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    with open("/proc/self/timens_offsets", "w", encoding="ascii") as offsets:
        offsets.write("boottime {} {}".format(*AHEAD))


if __name__ == "__main__":
    unshare()
    sys.exit(subprocess.run(sys.argv[1:], check=False).returncode)
