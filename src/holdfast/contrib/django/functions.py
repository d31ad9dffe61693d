"""The function that runs a task of `django.tasks` in a worker: passes its context, sends its signals."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from ...tasks.context import Context, Snooze
from .compat import TaskContext, normalize_json, task_finished, task_started
from .results import ended, result_of


def task_function(task: Any, alias: str, sender: type) -> Callable[..., Any]:
    """A function with the parameters of the task's function, without types: `django.tasks` passes plain JSON."""
    func, takes_context = task.func, task.takes_context

    def run(ctx: Context, /, *args: Any, **kwargs: Any) -> Any:
        with _announced(ctx, task, alias, sender) as running:
            given = (TaskContext(task_result=running.result), *args) if takes_context else args
            running.value = normalize_json(func(*given, **kwargs))
        return running.value

    async def run_async(ctx: Context, /, *args: Any, **kwargs: Any) -> Any:
        with _announced(ctx, task, alias, sender) as running:
            given = (TaskContext(task_result=running.result), *args) if takes_context else args
            running.value = normalize_json(await func(*given, **kwargs))
        return running.value

    made: Any = run_async if inspect.iscoroutinefunction(func) else run
    own = list(inspect.signature(func).parameters.values())[1 if takes_context else 0 :]
    ctx = inspect.Parameter("holdfast_context", inspect.Parameter.POSITIONAL_ONLY, annotation=Context)
    made.__signature__ = inspect.Signature([ctx, *(one.replace(annotation=one.empty) for one in own)])
    made.__name__, made.__qualname__, made.__module__ = func.__name__, func.__qualname__, func.__module__
    made.__doc__, made.__wrapped__, made.django_task = func.__doc__, func, task
    return made


class _Running:
    """A call of a task."""

    def __init__(self, result: Any) -> None:
        self.result = result
        self.value: Any = None


@contextmanager
def _announced(ctx: Context, task: Any, alias: str, sender: type) -> Generator[_Running]:
    """Send the signals of a run."""
    running = _Running(result_of(task, ctx.job, alias))
    task_started.send(sender, task_result=running.result)
    try:
        yield running
    except (Exception, SystemExit) as error:
        if not isinstance(error, Snooze):
            task_finished.send(sender, task_result=ended(running.result, error=error))
        raise
    task_finished.send(sender, task_result=ended(running.result, value=running.value))
