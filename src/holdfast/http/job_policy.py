"""Policy of the jobs that may be written over HTTP: by insert, change, replace, schedule, flow or retry.

The server sets `check` as the guard of group commit during each request, so every write of a job passes it. It refuses
shell commands that are not in `--allow-shell`, and task names of the form `module:name`, which a worker would import,
unless the module is in `--trust`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec

from ..core import follow_ups
from ..core.errors import ConfigError, InvalidJob
from ..core.job import SHELL_TASK, TERMINAL, UNDECODABLE, NewJob
from ..core.operations import Change
from ..tasks.registry import is_module, named_function
from .problems import SHELL_REFUSED, TASK_REFUSED, Kind, Refused

if TYPE_CHECKING:
    from ..parts import Parts

ALLOWED = frozenset({"command", "stdin"})
"""Keys of a shell job's payload that are allowed: `cwd` or `env` would change what the same command does."""
NO_JOB = ""
"""The expected task of a missing job: no job has it, so the store refuses the change."""


class JobRefused(Refused, InvalidJob):
    """A job that the policy refuses; nothing was stored."""

    def __init__(self, kind: Kind, detail: str) -> None:
        Refused.__init__(self, kind, detail)


class JobPolicy:
    """The policy of one server."""

    def __init__(self, parts: Parts, allow_shell: frozenset[str], trust: frozenset[str]) -> None:
        self._parts = parts
        self._allow_shell = allow_shell
        self._trust = trust
        for name in trust:
            if not is_module(name):
                raise ConfigError(f"trust= takes module names, such as shop.jobs, not {name!r:.100}")

    async def check(self, jobs: Sequence[NewJob], changes: Sequence[Change]) -> Sequence[Change]:
        """Raise JobRefused for a refused write; returns the changes, bound to the task that was checked."""
        for job in jobs:
            self.check_job(job)
        for change in changes:
            if change.patch is not None and isinstance(change.patch.extra, bytes):
                self._check_follow_ups(change.patch.extra)
        what_runs = [change for change in changes if _changes_what_runs(change)]
        if not what_runs:
            return changes
        found = await self._parts.session.store.get([change.id for change in what_runs])
        known = {job.id: (job.task, job.payload, job.codec) for job in jobs}
        known |= {record.id: (record.task, record.payload, record.codec) for record in found if record is not None}
        return [
            self._bound(change, *known.get(change.id, (NO_JOB, b"", ""))) if _changes_what_runs(change) else change
            for change in changes
        ]

    def _bound(self, change: Change, stored_task: str, payload: bytes, codec: str) -> Change:
        """The checked change, bound to the job's stored task. The stored payload may change before it is written."""
        task, expected, patch = stored_task, stored_task, change.patch
        if patch is not None and isinstance(patch.task, str):
            task = patch.task
            if task == SHELL_TASK and not isinstance(patch.payload, bytes):
                raise JobRefused(
                    SHELL_REFUSED,
                    "over HTTP a job cannot be moved to the shell task; the job was not changed. Submit a shell job"
                    " with an allowed command instead",
                )
        if patch is not None and isinstance(patch.payload, bytes):
            payload = patch.payload
        if stored_task != NO_JOB:
            self._check(task, payload, codec)
        if change.expected_task not in (None, stored_task):  # the proxying server checked another task
            expected = NO_JOB
        return msgspec.structs.replace(change, expected_task=expected)

    def check_job(self, job: NewJob) -> None:
        """Raise JobRefused for a job that the policy refuses."""
        self._check(job.task, job.payload, job.codec)
        self._check_follow_ups(job.extra)

    def _check_follow_ups(self, extra: bytes | None) -> None:
        for job in follow_ups.jobs_in(extra):
            self._check(job.task, job.payload, job.codec)

    def _check(self, task: str, payload: bytes, codec: str) -> None:
        if task == SHELL_TASK:
            self._check_shell(payload, codec)
        named = named_function(task)
        if named is not None and named[0] not in self._trust and not self._parts.registry.is_registered(task):
            module, _ = named
            raise JobRefused(
                TASK_REFUSED,
                f"task {task!r:.150} names a function of a module, which this server refuses; the job was not stored or"
                f" changed. Start the server with --trust {module:.100} to accept it, or register the function as a"
                " task",
            )

    def _check_shell(self, payload: bytes, codec: str) -> None:
        try:
            value: Any = msgspec.json.decode(payload) if codec == "json" else None
        except UNDECODABLE:
            value = None
        given = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
        command = given.get("command")
        if not isinstance(command, str) or command not in self._allow_shell:
            raise JobRefused(
                SHELL_REFUSED,
                "this shell command is not allowed over HTTP; the job was not stored or changed. Start the server with"
                " --allow-shell and the exact command to accept it",
            )
        if unwanted := sorted(given.keys() - ALLOWED):
            raise JobRefused(
                SHELL_REFUSED,
                f"over HTTP a shell job can have only command and stdin; the job was not stored or changed:"
                f" remove {', '.join(unwanted)}",
            )


def _changes_what_runs(change: Change) -> bool:
    """Whether a change replaces a job's task or payload, or restarts an ended job."""
    patch = change.patch
    if patch is None:
        return False
    revives = isinstance(patch.state, str) and patch.state not in TERMINAL and change.expected_state in TERMINAL
    return isinstance(patch.payload, bytes) or isinstance(patch.task, str) or revives
