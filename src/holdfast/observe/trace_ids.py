"""The trace context of a job: W3C `traceparent` and `tracestate` in its meta.

Any program may have written it, so it is validated when read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

PARENT, STATE = "traceparent", "tracestate"
_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?")


def trace_id_of(meta: Mapping[str, Any]) -> str | None:
    """The trace id in a job's meta; None without a valid one."""
    parent = meta.get(PARENT)
    if not isinstance(parent, str) or len(parent) > 200:
        return None
    match = _PARENT.fullmatch(parent)
    return None if match is None else match[1]
