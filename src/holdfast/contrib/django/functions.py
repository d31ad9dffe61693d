"""The function that runs a task of `django.tasks` in a worker: passes its context, sends its signals."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ...tasks.context import Context, Snooze
from .compat import TaskContext, normalize_json, task_finished, task_started
from .results import ended, result_of


def task_function(task: Any, alias: str, sender: type) -> Callable[..., Any]:
    """A function with the parameters of the task's function, without types: `django.tasks` passes plain JSON."""
    func, takes_context = task.func, task.takes_context

    def given(result: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return (TaskContext(task_result=result), *args) if takes_context else args

    def run(ctx: Context, /, *args: Any, **kwargs: Any) -> Any:
        call = _Call(result_of(task, ctx.job, alias))
        task_started.send(sender, task_result=call.result)
        try:
            with call:
                call.value = normalize_json(func(*given(call.result, args), **kwargs))
        finally:
            if call.ended:
                task_finished.send(sender, task_result=call.result)
        return call.value

    async def run_async(ctx: Context, /, *args: Any, **kwargs: Any) -> Any:
        call = _Call(result_of(task, ctx.job, alias))
        await task_started.asend(sender, task_result=call.result)  # receivers may make queries
        try:
            with call:
                call.value = normalize_json(await func(*given(call.result, args), **kwargs))
        finally:
            if call.ended:
                await task_finished.asend(sender, task_result=call.result)
        return call.value

    made: Any = run_async if inspect.iscoroutinefunction(func) else run
    own = list(inspect.signature(func).parameters.values())[1 if takes_context else 0 :]
    ctx = inspect.Parameter("holdfast_context", inspect.Parameter.POSITIONAL_ONLY, annotation=Context)
    made.__signature__ = inspect.Signature([ctx, *(one.replace(annotation=one.empty) for one in own)])
    made.__name__, made.__qualname__, made.__module__ = func.__name__, func.__qualname__, func.__module__
    made.__doc__, made.__wrapped__, made.django_task = func.__doc__, func, task
    return made


class _Call:
    """A call of a task: the result that its signals get."""

    def __init__(self, result: Any) -> None:
        self.result = result
        self.value: Any = None
        self.ended = False
        """Whether it has succeeded or failed; a call that snoozes or is cancelled has not."""

    def __enter__(self) -> None:
        """The function begins."""

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self.ended = error is None or (isinstance(error, Exception | SystemExit) and not isinstance(error, Snooze))
        if self.ended:
            ended(self.result, value=self.value, error=error)
