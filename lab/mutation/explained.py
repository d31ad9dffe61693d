"""Mutants that no test can catch, each with the reason: they do the same, or only sooner, later or at another price."""

from __future__ import annotations

EXPLAINED: dict[tuple[str, str, str, str], str] = {
    ("store/group_commit.py", "self._writes = 0", "0", "1"): "only differences of the count are used",
    (
        "client/heartbeat.py",
        "if loop is not None and stop is not None and not loop.is_closed():",
        "loop is not None and stop is not None and not loop.is_closed()",
        "(loop is not None and (not loop.is_closed()))",
    ): "one statement sets both of them; the condition is for the type checker",
}
"""By file, line, old text and new text, so that it holds wherever the lines go."""
