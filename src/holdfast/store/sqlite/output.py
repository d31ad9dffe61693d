"""OUTPUT: the output of jobs, appended in pieces under the fence of the claim, and read from any position on."""

from __future__ import annotations

from ...core.operations import Output, Printed
from ..reference.apply import output_position
from . import sql
from .step import Step


def append(step: Step, seq: int, fence: int, output: Output) -> None:
    """Append a piece under a claim that has been checked, and remove the oldest pieces beyond the limit."""
    position = output_position(step.one(sql.LAST_OUTPUT, seq, output.stream), fence, output.at)
    if position is not None:
        step.connection.execute(sql.APPEND_OUTPUT, (seq, output.stream, position, fence, output.at, output.data))
        first = position + len(output.data) - output.keep
        step.connection.execute(sql.TRIM_OUTPUT, (seq, output.stream, first, first))


def read(step: Step, id: str, position: int, limit: int, stream: bool) -> list[Printed]:
    found: list[Printed] = []
    pieces = (step.value(sql.SEQ, id), stream, position)
    for row in step.connection.execute(sql.OUTPUT, pieces * 2):
        found.append(Printed(*row, stream=stream))
        limit -= len(row[2])
        if limit <= 0:
            break
    return found
