"""The backend of `django.tasks`: its tasks are tasks of the app, so that every worker, command and page shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

from django.apps import apps
from django.core import checks
from django.utils.module_loading import import_string
from django.utils.timezone import is_naive, make_aware, now

from ...app import parts_of
from ...core.errors import ConfigError, InvalidJob, JobNotFound
from ...tasks.options import JOB_OPTIONS, TASK_OPTIONS
from ...tasks.task import Task as HoldfastTask
from ...views import Job
from .compat import (
    BaseTaskBackend,
    InvalidTask,
    Task,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_enqueued,
)
from .configuration import current
from .functions import task_function
from .process_app import get_app
from .results import meta_of, result_of

KNOWN = {*TASK_OPTIONS, *JOB_OPTIONS} - {"name", "payload", "codec", "batch", "wait", "queue", "priority", "at"}
"""Options of Holdfast that a task may have; others are Django's, or need types, which `django.tasks` does not have."""


@dataclass(frozen=True, kw_only=True, init=False)
class OptionsTask(Task):
    """A task of `django.tasks` with options of Holdfast: `@task(limit=…, unique=…)`, `task.using(key=…)`."""

    options: Mapping[str, Any] = field(default_factory=dict[str, Any], hash=False)

    def __init__(self, *, options: Mapping[str, Any] | None = None, **given: Any) -> None:
        own = {name: given.pop(name) for name in [*given] if name not in _FIELDS}
        object.__setattr__(self, "options", {**(options or {}), **own})
        super().__init__(**given)

    def using(self, **changes: Any) -> Self:
        """The same task with other attributes or options of Holdfast."""
        changed = {name: value for name, value in changes.items() if value is not None}
        own = {name: changed.pop(name) for name in [*changed] if name not in _FIELDS}
        return replace(self, **changed, options={**self.options, **own})

    @property
    def app_task(self) -> HoldfastTask[..., Any]:
        """The same task as one of the app: for schedules, flows, `enqueue_many` and `assert_enqueued`."""
        return self.get_backend().app_task(self)


_FIELDS = frozenset(one.name for one in fields(Task))


class HoldfastBackend(BaseTaskBackend):
    """Stores tasks as jobs. `OPTIONS`: options of Holdfast for all tasks of this backend, such as `max_attempts`."""

    task_class = OptionsTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        parts_of(get_app()).registry.queues |= self.queues

    def validate_task(self, task: Any) -> None:
        """As Django does; and declare the task on the app."""
        super().validate_task(task)
        self._given(task)
        self.app_task(task)

    def enqueue(self, task: Any, args: Iterable[Any], kwargs: Mapping[str, Any]) -> Any:
        """Store a job; inside `transaction.atomic()`, as a part of that transaction."""
        self.validate_task(task)
        result = TaskResult(
            task=task,
            id="",
            status=TaskResultStatus.READY,
            enqueued_at=now(),
            started_at=None,
            finished_at=None,
            last_attempted_at=None,
            args=list(args),
            kwargs=dict(kwargs),
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
        using = self.app_task(task).using(**self._job_options(result)).sync
        if current().immediate:  # it runs now
            runtime = parts_of(get_app()).runtime
            object.__setattr__(result, "id", runtime.entropy.uuid7(runtime.clock.now()))
            task_enqueued.send(type(self), task_result=result)
            handle = using.using(id=result.id).enqueue(*result.args, **result.kwargs)
            return self.get_result(handle.id)
        handle = using.enqueue(*result.args, **result.kwargs)
        object.__setattr__(result, "id", handle.id)
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        """The result of a job of `django.tasks`."""
        try:
            job = get_app().sync.job(result_id)
        except (JobNotFound, InvalidJob):
            raise TaskResultDoesNotExist(result_id) from None
        return result_of(self._task(job), job, self.alias)

    def _task(self, job: Job) -> Any:
        """The task of a job; a name that the app has, or that can be imported."""
        known = parts_of(get_app()).registry.tasks.get(job.task)
        found = getattr(getattr(known, "fn", None), "django_task", None) or _imported(job.task)
        if found is None:
            raise TaskResultDoesNotExist(
                f"job {job.id!r} was not enqueued with django.tasks (its task is {job.task!r}): read it with"
                " get_app().sync.job(…)"
            )
        return found

    def check(self, **kwargs: Any) -> list[checks.CheckMessage]:
        """The project has the Django app too, whose migrations, commands and signals the backend needs."""
        if apps.is_installed("holdfast.contrib.django"):
            return super().check(**kwargs)
        hint = 'Add "holdfast.contrib.django" to INSTALLED_APPS.'
        what = f"TASKS[{self.alias!r}] is a backend of Holdfast, whose Django app is not installed"
        return [checks.Error(what, hint=hint, id="holdfast.E002")]

    def app_task(self, task: Any) -> HoldfastTask[..., Any]:
        """The task of the app with the same function, which is declared at its first use."""
        name = task.module_path
        known = parts_of(get_app()).registry.tasks.get(name)
        if known is not None and getattr(known.fn, "__wrapped__", None) is task.func:
            return known
        given = {option: value for option, value in self._given(task).items() if option in TASK_OPTIONS}
        given |= {"name": name, "queue": task.queue_name, "priority": -task.priority}
        try:
            return get_app().task(task_function(task, self.alias, type(self)), **given)
        except (ConfigError, InvalidJob, TypeError) as error:
            raise InvalidTask(f"task {name!r}: {error}") from error

    def _given(self, task: Any) -> dict[str, Any]:
        given = {**self.options, **getattr(task, "options", {})}
        if unknown := given.keys() - KNOWN:
            raise InvalidTask(
                f"task {task.module_path!r} has unknown options: {', '.join(sorted(unknown))}; known ones:"
                f" {', '.join(sorted(KNOWN))}"
            )
        return given

    def _job_options(self, result: Any) -> dict[str, Any]:
        """The options of one call. Django's priorities are higher first, and Holdfast's lower first."""
        task = result.task
        given = {name: value for name, value in self._given(task).items() if name in JOB_OPTIONS}
        if callable(given.get("retry")):  # a rule of the task, which cannot be stored
            del given["retry"]
        given |= {"queue": task.queue_name, "priority": -task.priority}
        if task.run_after is not None:
            given["at"] = make_aware(task.run_after) if is_naive(task.run_after) else task.run_after
        if meta := meta_of(result):
            given["meta"] = {**given.get("meta", {}), **meta}
        return given


def _imported(path: str) -> Any:
    try:
        found = import_string(path)
    except ImportError:
        return None
    return found if isinstance(found, Task) else None
