"""The supervisor of `worker start --foreground`: `python -m holdfast.cli.foreground OPTIONS KEY`.

It replaces the process of the command, which has opened the store and imported the application: workers are forked from
a process that has not.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import NoReturn

import msgspec

from ..observe.logs import set_up
from ..worker.background import supervise
from ..worker.service import Service
from .main import run


def replace_process(service: Service, key: str) -> NoReturn:
    """Become the supervisor."""
    sys.stdout.flush()
    sys.stderr.flush()
    options = msgspec.json.encode(service).decode()
    os.execv(sys.executable, [sys.executable, "-m", __name__, options, key])  # noqa: S606  # no shell is wanted


def main() -> None:
    service = msgspec.json.decode(sys.argv[1], type=Service)
    set_up(service.log_level, service.log_format)
    supervise(service, sys.argv[2], _log_started)


def _log_started(pids: list[int]) -> None:
    fields = {"pids": pids, "supervisor": os.getpid()}
    logging.getLogger("holdfast").info("workers_started", extra={"fields": fields})


if __name__ == "__main__":
    run(main)
