"""The options of tasks and jobs, declared once, for `task`, `using`, `submit`, HTTP, the command line and schedules.

A new option of a job is an entry of `JobOptions`, with its checker, and a field of `Options`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, Protocol, Required, TypedDict, cast

import msgspec

from ..codec.meta import checked_meta
from ..core.errors import InvalidJob
from ..core.retry import Backoff, RetryRule
from ..core.validation import (
    checked_at,
    checked_attempts,
    checked_backoff,
    checked_expires,
    checked_name,
    checked_priority,
    checked_seconds,
    checked_tags,
    checked_text,
    checked_unique,
)
from .limits import Limit, given_limit

Duration = float | timedelta
"""Seconds, or a timedelta."""


class Codec(Protocol):
    """A user's own encoding of whole calls: (args, kwargs) and results, to bytes and back."""

    def dumps(self, value: Any) -> bytes:
        """To bytes."""
        ...

    def loads(self, data: bytes) -> Any:
        """Back again."""
        ...


def name_of_codec(codec: Codec) -> str:
    """The name that is stored with jobs of a codec."""
    return getattr(codec, "name", "custom")


def _by(check: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Gives a checker that is written in place its type."""
    return check


def _checked_replace(replace: Any) -> bool:
    if type(replace) is not bool:
        raise InvalidJob(f"replace= must be True or False, not {replace!r:.100}")
    return replace


def _checked_follow_up(given: Any, option: str) -> Any:
    if isinstance(given, str):
        return checked_name(given, "task")
    if isinstance(getattr(given, "options", None), Options) and not hasattr(given, "args"):
        return given
    raise InvalidJob(f"{option}= takes a task, task.using(…) or the name of a task, not {given!r:.100}")


class CommonOptions(TypedDict, total=False):
    """Options that a task may declare for all of its jobs, and a call may set for one. None means not given.

    Each has a checker, from the given value to the field of `Options` of the same name, or to those of `PAIRS`.
    """

    queue: Annotated[str | None, _by(lambda given: checked_name(given, "queue"))]
    """1 to 128 printable characters."""
    priority: Annotated[int | None, checked_priority]
    """-32768 to 32767, lower first."""
    max_attempts: Annotated[int | None, checked_attempts]
    """Charged starts including the first; 0 is unlimited."""
    timeout: Annotated[Duration | None, _by(lambda given: checked_seconds(given, "timeout", positive=True))]
    """Maximum seconds of one run."""
    stall_timeout: Annotated[Duration | None, _by(lambda given: checked_seconds(given, "stall_timeout", positive=True))]
    """Maximum seconds of a run without progress, output, a checkpoint or another note of the task."""
    tags: Annotated[Sequence[str] | None, checked_tags]
    """Words to find jobs by."""
    unique: Annotated[str | Duration | None, checked_unique]
    """One job for all calls with the same key (else arguments): "until_start", "until_end", or for so many seconds."""
    limit: Annotated[Limit | None, given_limit]
    """Maximum concurrency and start rate, over all workers."""


class JobOptions(CommonOptions, total=False):
    """Options of one call."""

    retry: Annotated[Backoff | None, checked_backoff]
    """The waits between attempts."""
    delay: Annotated[Duration | None, _by(lambda given: (checked_seconds(given, "delay"), None))]
    """Seconds from now before which it does not start."""
    at: Annotated[datetime | float | None, _by(lambda given: (0.0, checked_at(given)))]
    """An aware time, or seconds since 1970, before which it does not start; not together with `delay`."""
    key: Annotated[str | None, _by(lambda given: checked_text(given, "key"))]
    """The idempotency key, 1 to 512 printable characters: the same key gives the same job."""
    id: Annotated[str | None, _by(lambda given: checked_text(given, "id"))]
    """An id chosen by the caller; 1 to 512 printable characters."""
    meta: Annotated[Mapping[str, Any] | None, checked_meta]
    """Plain JSON that is stored with the job."""
    connection: Annotated[Any, _by(lambda given: given)]
    """Enqueue inside this connection's transaction."""
    replace: Annotated[bool | None, _checked_replace]
    """If the job with the key still waits, it gets these arguments and this due time."""
    debounce: Annotated[Duration | None, _by(lambda given: (checked_seconds(given, "debounce", positive=True), None))]
    """As `replace`, due this many seconds after the last call."""
    debounce_max: Annotated[Duration | None, _by(lambda given: checked_seconds(given, "debounce_max"))]
    """But at most this many seconds after the first call."""
    expires: Annotated[Duration | datetime | None, checked_expires]
    """It expires unless it has started: in seconds, or at an aware time."""
    deadline: Annotated[Duration | datetime | None, _by(lambda given: checked_expires(given, "deadline"))]
    """It is dead unless it has ended, over all attempts: in seconds, or at an aware time."""
    on_success: Annotated[Any, _by(lambda given: _checked_follow_up(given, "on_success"))]
    """A task, `task.using(…)` or a task's name: its job is stored when this one has succeeded, and gets its id."""
    on_dead: Annotated[Any, _by(lambda given: _checked_follow_up(given, "on_dead"))]
    """The same when this one is dead."""


class EditOptions(TypedDict, total=False):
    """What an edit of a waiting job can change, besides its arguments; the values are those of `JobOptions`."""

    queue: str | None
    priority: int | None
    delay: Duration | None
    at: datetime | float | None


class _Declared(CommonOptions, total=False):
    name: str | None
    """The task's name; else the function's."""
    aliases: Sequence[str]
    """Former names: jobs that were stored under them run this task."""
    retry: RetryRule | None
    """A Backoff, or a function of (exception, attempt) that returns seconds to wait, or None to give up."""
    payload: bool
    """The function gets the JSON object of the payload as its one argument."""
    codec: Codec | None
    """An encoding of calls and results, instead of JSON."""
    retention: Duration | str | None
    """How long its ended jobs are kept, instead of the setting."""
    expires: Duration | None
    """Seconds after which a job expires unless it has started."""
    deadline: Duration | None
    """Seconds after which a job is dead unless it has ended, over all attempts."""
    log_level: str | None
    """The lowest level that is stored of what it prints and logs, instead of the setting `task_log_level`."""


class TaskOptions(_Declared, total=False):
    """Options that a task may declare."""

    run_in: str | None
    """Async functions: "loop"; plain ones: "thread"; either: "process" (of a pool) or "isolated" (a fresh one)."""
    memory: int | str | None
    """The memory limit of its process, in bytes or as "2GB"."""


class BatchOptions(_Declared, total=False):
    """Options of a task whose calls handle several jobs."""

    batch: Required[int]
    """Maximum number of jobs of one call."""
    wait: Duration | None
    """Maximum seconds for which they are collected."""


class Options(msgspec.Struct, frozen=True):
    """The checked options of a job; None: those of the task, then of the app."""

    queue: str | None = None
    priority: int | None = None
    max_attempts: int | None = None
    timeout: float | None = None
    stall_timeout: float | None = None
    retry: Backoff | None = None
    delay: float = 0.0
    run_at: int | None = None
    key: str | None = None
    id: str | None = None
    tags: tuple[str, ...] = ()
    meta: Mapping[str, Any] = {}
    connection: Any = None
    unique: str | None = None
    window: float = 0.0
    replace: bool = False
    debounce_max: float | None = None
    """Seconds from its creation within which a replaced job is due, however often it is replaced."""
    expires_in: float | None = None
    expires_at: int | None = None
    deadline_in: float | None = None
    deadline_at: int | None = None
    limit: Limit | None = None
    on_success: Any = None
    on_dead: Any = None

    def changed(self, given: JobOptions) -> "Options":
        """A copy with some options set, each checked before anything is stored."""
        new: dict[str, Any] = {}
        for name, value in given.items():
            try:
                check, pair = _CHECKED[name]
            except KeyError:
                raise unknown_option(name, JOB_OPTIONS) from None
            if value is None:
                continue
            if pair is None:
                new[name] = check(value)
            else:
                new[pair[0]], new[pair[1]] = check(value)
        if not new:
            return self
        if not _TOGETHER.isdisjoint(given):
            _check_together(given, new)
        made = _replace(self, **new)
        made.check()
        return made

    def check(self) -> None:
        """Reject options that contradict each other."""
        if self.replace and self.key is None:
            raise InvalidJob("replace= and debounce= need key=, which identifies the job to replace")
        if self.replace and self.unique != "until_start":
            raise InvalidJob(
                "replace= changes only a job that has not started: use unique='until_start', or leave unique= out"
            )
        if self.replace and self.connection is not None:
            raise InvalidJob(
                "replace= and debounce= cannot be used with connection=: enqueue the job without connection="
            )
        if self.replace and (self.on_success is not None or self.on_dead is not None):
            raise InvalidJob(
                "replace= and debounce= cannot be used with on_success= or on_dead=: leave out replace= and debounce=,"
                " or leave out on_success= and on_dead="
            )
        if self.debounce_max is not None and self.debounce_max < self.delay:
            raise InvalidJob(
                f"debounce_max= ({self.debounce_max:g} s) is shorter than debounce= ({self.delay:g} s): make it longer"
            )
        if self._before_due(self.expires_in, self.expires_at):
            raise InvalidJob("expires= must be later than delay= or at=: the job would expire before it is due")
        if self._before_due(self.deadline_in, self.deadline_at):
            raise InvalidJob("deadline= must be later than delay= or at=: the job would be dead before it is due")

    def _before_due(self, seconds: float | None, at: int | None) -> bool:
        late = seconds is not None and self.run_at is None and seconds <= self.delay
        return late or (at is not None and self.run_at is not None and at <= self.run_at)


PAIRS = {
    "delay": ("delay", "run_at"),
    "at": ("delay", "run_at"),
    "debounce": ("delay", "run_at"),
    "unique": ("unique", "window"),
    "expires": ("expires_in", "expires_at"),
    "deadline": ("deadline_in", "deadline_at"),
}
"""Options that set two fields of `Options`."""
OPTION_OF = {
    "run_at": "at",
    "window": "unique",
    **dict.fromkeys(PAIRS["expires"], "expires"),
    **dict.fromkeys(PAIRS["deadline"], "deadline"),
}
"""The option of a field of `Options`, if its name differs."""
_CHECKED: dict[str, tuple[Callable[[Any], Any], tuple[str, str] | None]] = {
    name: (kind.__metadata__[0], PAIRS.get(name)) for name, kind in JobOptions.__annotations__.items()
}
_TOGETHER = {"at", "replace", "debounce", "debounce_max"}
_replace = msgspec.structs.replace


def _check_together(given: JobOptions, new: dict[str, Any]) -> None:
    """Reject options of one call that contradict each other, and add those that they imply."""
    delayed = given.get("delay") is not None
    timed = given.get("at") is not None
    if delayed and timed:
        raise InvalidJob("give either delay= or at=, not both")
    if given.get("debounce") is not None:
        if delayed or timed or given.get("replace") is False or given.get("unique") is not None:
            raise InvalidJob(
                "debounce= cannot be used with delay=, at=, unique= or replace=False: remove these options"
            )
        new["replace"] = True
    elif given.get("debounce_max") is not None:
        raise InvalidJob("debounce_max= requires debounce=")
    if new.get("replace") and "unique" not in new:
        new["unique"], new["window"] = "until_start", 0.0


EDITED = tuple(EditOptions.__annotations__)
JOB_OPTIONS = tuple(JobOptions.__annotations__)
TASK_OPTIONS = tuple({**TaskOptions.__annotations__, **BatchOptions.__annotations__})
_OF_JOBS = ({*JOB_OPTIONS} & {*TASK_OPTIONS}) - {"retry"}
"""Options that a task declares for its jobs. Its retry policy may be a function, which cannot be stored."""


def declared(given: Mapping[str, Any]) -> tuple[Options, dict[str, Any]]:
    """The checked options that a task declares for its jobs, and those of the task itself."""
    for name in given:
        if name not in TASK_OPTIONS:
            raise unknown_option(name, TASK_OPTIONS)
    of_jobs = {name: value for name, value in given.items() if name in _OF_JOBS}
    return Options().changed(cast("JobOptions", of_jobs)), {
        name: value for name, value in given.items() if name not in _OF_JOBS
    }


def unknown_option(name: str, known: Collection[str]) -> TypeError:
    """The error for an unknown option, with the closest known one."""
    from difflib import get_close_matches  # late: only for mistakes

    from .celery_names import OPTIONS

    if name in OPTIONS:
        return TypeError(f"unknown option {name!r}, which is Celery's: {OPTIONS[name]}")
    close = get_close_matches(name, known, 1)
    hint = f"did you mean {close[0]!r}?" if close else f"known options: {', '.join(known)}"
    return TypeError(f"unknown option {name!r}; {hint}")
