"""Where a job keeps the trace that it was enqueued in: W3C trace context, in its meta, under the standard's own names.

Any program may have written it, so it is read with care.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

PARENT, STATE = "traceparent", "tracestate"
_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?")


def trace_id_of(meta: Mapping[str, Any]) -> str | None:
    """The id of the trace that a job belongs to; None where it belongs to none."""
    parent = meta.get(PARENT)
    if not isinstance(parent, str) or len(parent) > 200:
        return None
    match = _PARENT.fullmatch(parent)
    return None if match is None else match[1]
