"""Runs a program on a disk of 2 MB, which it fills and clears again."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def _can_mount() -> bool:
    command = ["unshare", "-rm", "true"]
    return bool(shutil.which("unshare")) and subprocess.run(command, check=False, capture_output=True).returncode == 0


needs_small_disk = pytest.mark.skipif(not _can_mount(), reason="needs user namespaces")


def run_on_small_disk(program: Path, disk: Path, *arguments: object) -> str:
    """What the program printed. It gets the folder of the disk, and these arguments, and says at last "recovered"."""
    words = " ".join(f'"{word}"' for word in (sys.executable, program, disk, *arguments))
    ran = subprocess.run(
        ["unshare", "-rm", "sh", "-c", f'mount -t tmpfs -o size=2m tmpfs "{disk}" && exec {words}'],
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
        env=os.environ | {"PYTHONPATH": "src"},
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.splitlines()[-1] == "recovered"
    return ran.stdout
