"""An idle worker, watched from outside: memory, CPU, wake-ups, and what it asks of its store."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping

from . import look
from .process import Child
from .scenario import Values

IDLE_AFTER = 12.0
"""Seconds after its first job at which a worker counts as idle: its first look at everything is over."""
MEMORY, CPU, WAKE_UPS = "idle worker, memory (PSS)", "idle worker, CPU", "idle worker, wake-ups"
TRANSACTIONS, COMMANDS, SCRIPTS = "idle worker, transactions", "idle worker, commands", "idle worker, scripts"

Traffic = Callable[[float], Mapping[str, float]]
"""Waits for so many seconds; what reached the store meanwhile, by figure and unit."""


def watch(worker: Child, seconds: float, traffic: Traffic) -> Values:
    """Figures of a worker and of all processes that it has started."""
    time.sleep(IDLE_AFTER)
    pids, start = look.family(worker.pid), time.monotonic()
    cpu, woken = sum(map(look.cpu_seconds, pids)), sum(map(look.wake_ups, pids))
    found = traffic(seconds)
    worker.check_alive()
    took = time.monotonic() - start
    return {
        f"{MEMORY}, MB": sum(map(look.proportional_megabytes, pids)),
        f"{CPU}, %": 100 * (sum(map(look.cpu_seconds, pids)) - cpu) / took,
        f"{WAKE_UPS}, wake-ups/s": (sum(map(look.wake_ups, pids)) - woken) / took,
        **found,
    }


def no_server(seconds: float) -> Values:
    """A file has no server that could count."""
    time.sleep(seconds)
    return {}


def redis_traffic(port: int) -> Traffic:
    """Commands that clients send, and how many of them are scripts; what a script calls is not counted."""

    def traffic(seconds: float) -> Values:
        said, deadline = b"", time.monotonic() + seconds
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(b"MONITOR\r\n")
            while (left := deadline - time.monotonic()) > 0:
                connection.settimeout(left)
                try:
                    said += connection.recv(65536)
                except TimeoutError:
                    break
        sent = [line.upper() for line in said.splitlines()[1:] if b" lua]" not in line]
        scripts = [line for line in sent if b'"EVAL' in line or b'"FCALL' in line]
        return {f"{COMMANDS}, commands/s": len(sent) / seconds, f"{SCRIPTS}, scripts/s": len(scripts) / seconds}

    return traffic


def postgres_traffic(committed: Callable[[], int]) -> Traffic:
    """Transactions of one database, by the server's own count."""

    def traffic(seconds: float) -> Values:
        before = committed()
        time.sleep(seconds)
        return {f"{TRANSACTIONS}, transactions/s": (committed() - before) / seconds}

    return traffic
