"""Shell jobs over HTTP: refused, but for the commands that whoever started the server has listed, word for word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import msgspec

from ..job import NewJob
from ..worker.run.shell import SHELL_TASK
from .problems import SHELL_REFUSED, Refused

ALLOWED = frozenset({"command", "stdin"})
"""What may be given: another folder or environment would make another command of the same words."""


def check_shell(jobs: Sequence[NewJob], allowed: frozenset[str]) -> None:
    """Refuse a shell job whose command is not listed."""
    for job in jobs:
        if job.task == SHELL_TASK:
            _check(job, allowed)


def _check(job: NewJob, allowed: frozenset[str]) -> None:
    payload: Any = msgspec.json.decode(job.payload) if job.codec == "json" else None
    given = cast("dict[str, Any]", payload) if isinstance(payload, dict) else {}
    command = given.get("command")
    if not isinstance(command, str) or command not in allowed:
        raise Refused(
            SHELL_REFUSED,
            "shell jobs are refused over HTTP, but for those commands that the server was started with (--allow-shell)",
        )
    if unwanted := sorted(given.keys() - ALLOWED):
        raise Refused(SHELL_REFUSED, f"over HTTP a shell job has a command and stdin alone, not {', '.join(unwanted)}")
