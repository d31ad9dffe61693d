"""Assertions about the jobs that a test has enqueued."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from ..client.runtime import Runtime
from ..core.errors import ConfigError
from ..core.job import Record
from ..core.operations import Where
from ..store.reference.memory import MemoryStore
from ..sync.blocking import runs_on
from ..sync.tasks import drive
from ..tasks.task import Task, Using
from ..views import Job, job_view
from .verbs import every

_SHOWN = 20
"""Jobs that the message of a failed assertion shows: one screen."""


def assert_enqueued(task: Task[..., Any] | Using[..., Any], /, *args: Any, **kwargs: Any) -> list[Job]:
    """The jobs of a task that were enqueued with these arguments, oldest first; AssertionError if there are none.

    Arguments that are not given may have any value. Jobs in every state count, also those that have ended:

        [job] = assert_enqueued(send, order_id=1)       # exactly one
        assert job.queue == "mail"

    Not a coroutine: it needs no `await`. In async code the app must use a memory store.
    """
    __tracebackhide__ = True  # pytest shows the line of the test
    jobs = _Jobs(task, args, kwargs)
    if not jobs.matching:
        raise AssertionError(f"no job of task {jobs.task.name!r} was enqueued with {jobs.wanted}; {jobs.others()}")
    return [job_view(record) for record in jobs.matching]


def assert_not_enqueued(task: Task[..., Any] | Using[..., Any], /, *args: Any, **kwargs: Any) -> None:
    """AssertionError if a job of the task was enqueued with these arguments; see `assert_enqueued`."""
    __tracebackhide__ = True
    jobs = _Jobs(task, args, kwargs)
    if jobs.matching:
        raise AssertionError(
            f"jobs of task {jobs.task.name!r} with {jobs.wanted} were enqueued: {jobs.shown(jobs.fitting)}"
        )


class _Jobs:
    """The jobs of a task, and which of them have the wanted arguments."""

    def __init__(self, given: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not isinstance(given, Task | Using):
            raise ConfigError(f"assert_enqueued takes the task itself (@app.task), not {given!r:.100}")
        task = self.task = cast("Task[..., Any]", given.task if isinstance(given, Using) else given)
        self._wanted = task.arguments.partly_named(args, kwargs)
        self.wanted = ", ".join(f"{name}={value!r}" for name, value in self._wanted.items()) or "any arguments"
        records = _records(vars(task.client)["_runtime"], task.name)
        self._all = [(record, self._call(record)) for record in reversed(records)]
        self.fitting = [(record, call) for record, call in self._all if isinstance(call, dict) and self._fits(call)]
        self.matching = [record for record, _ in self.fitting]

    def _call(self, record: Record) -> dict[str, Any] | str:
        """The arguments of a job, or why they are unknown."""
        try:
            return self.task.arguments.named(*self.task.stored_as(record.codec).decode(record.payload))
        except Exception as error:  # noqa: BLE001  # a codec of the user may raise anything
            return f"undecodable: {error}"

    def _fits(self, call: dict[str, Any]) -> bool:
        return all(name in call and call[name] == value for name, value in self._wanted.items())

    def shown(self, jobs: Sequence[tuple[Record, dict[str, Any] | str]]) -> str:
        """Some jobs of the task, as text."""
        lines = [f"\n  {record.state} {record.id} {_call_text(self.task, call)}" for record, call in jobs]
        more = f"\n  and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
        return "".join(lines[:_SHOWN]) + more

    def others(self) -> str:
        return f"its jobs are: {self.shown(self._all)}" if self._all else "it has no jobs"


def _call_text(task: Task[..., Any], call: dict[str, Any] | str) -> str:
    if isinstance(call, str):
        return call
    return f"{task.name}({', '.join(f'{name}={value!r}' for name, value in call.items())})"


def _records(runtime: Runtime, task: str) -> list[Record]:
    where, store = Where(task=task), runtime.store
    if isinstance(store, MemoryStore):
        return drive(every(store, where, page=1000))  # which never suspends
    return runs_on(runtime)(lambda: runtime.run(lambda session: every(session.store, where, page=1000)))
