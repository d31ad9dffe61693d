"""How much a test does that looks for defects at random: a part in `make test`, the whole in `make test-all`.

Such a test is marked `sized`, so that `make test-all` runs it again, with HOLDFAST_LONG=1.
"""

from __future__ import annotations

import os

LONG = bool(os.environ.get("HOLDFAST_LONG"))


def size(whole: int) -> int:
    """A fifth of it in `make test`."""
    return whole if LONG else max(1, whole // 5)
