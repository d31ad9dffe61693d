"""What a blocked job waits for, as its record says it."""

from __future__ import annotations


def end_of(id: str) -> str:
    """What a job waits for that comes after another."""
    return f"job:{id}"


def beginning_of(flow: str) -> str:
    """What the first jobs of a flow wait for."""
    return f"begin:{flow}"


def all_of(flow: str) -> str:
    """What a job waits for that comes after all others of its flow."""
    return f"flow:{flow}"
