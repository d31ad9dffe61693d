"""Processes that are busy with a bucket in the cloud until they end: every one of them ends well."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from support import s3

pytest.importorskip("obstore")
pytest.importorskip("ministack")
MAIN = Path(__file__).parent / "cloud_main.py"
PROCESSES, AT_ONCE = 60, 6


@pytest.mark.extended
def test_sixty_busy_processes_end_without_an_abort():
    endpoint = s3.shared(s3.Ministack).endpoint
    ended = Counter()
    for first in range(0, PROCESSES, AT_ONCE):
        started = [
            subprocess.Popen(
                [sys.executable, str(MAIN), endpoint, str(number)],
                stdout=subprocess.PIPE,
                text=True,
                env=os.environ | s3.KEYS,
            )
            for number in range(first, first + AT_ONCE)
        ]
        for process in started:
            said, _ = process.communicate(timeout=60)
            ended[process.returncode, said] += 1
    assert ended == {(0, "done\n"): PROCESSES}
