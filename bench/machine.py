"""What a run ran on, as far as it matters to its figures; nothing that names the machine."""

from __future__ import annotations

import os
import platform
import sqlite3
import sys
import time
from pathlib import Path
from typing import Any


def describe(folder: Path) -> dict[str, Any]:
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "file_system": _file_system(folder),
        "fsyncs_per_second": round(_fsyncs(folder)),
        "load_before": [round(part, 2) for part in os.getloadavg()],
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _file_system(folder: Path) -> str:
    if sys.platform != "linux":
        return "unknown"
    mounts = [line.split() for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines()]
    above = [(point, kind) for _, point, kind, *_ in mounts if folder.is_relative_to(point)]
    return max(above, default=("", "unknown"), key=lambda mount: len(mount[0]))[1]


def _fsyncs(folder: Path, count: int = 200) -> float:
    """The cost of durability here: small appends made durable, a second."""
    path = folder / "fsync"
    with path.open("wb", buffering=0) as file:
        start = time.perf_counter()
        for _ in range(count):
            file.write(b"x" * 4096)
            os.fsync(file.fileno())
        took = time.perf_counter() - start
    path.unlink()
    return count / took
