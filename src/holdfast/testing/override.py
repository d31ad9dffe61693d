"""Replaces a dependency in a test."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from ..app import Holdfast, parts_of
from ..tasks.depends import Dependencies, Depends, dependencies_of


@contextmanager
def override(app: Holdfast, dependency: Callable[..., Any], replacement: Callable[..., Any]) -> Generator[None]:
    """While the block runs, jobs of the app get what `replacement` makes, wherever they depend on `dependency`.

    `replacement` is a function as for `Depends`. Jobs in separate processes are not affected.
    """
    parts = parts_of(app)
    hooks = parts.hooks
    Depends(replacement)
    before, declared = hooks.overrides, {"it": Depends(dependency)}
    replaced = {**before, dependency: replacement}
    Dependencies(declared, replaced)  # a wrong replacement is refused here, and for each task that gets it
    for task in parts.registry.tasks.values():
        if task.dependencies is not None:
            dependencies_of(task.fn, task.arguments.injected, batch=task.batch is not None, overrides=replaced)
    hooks.overrides = replaced
    try:
        yield
    finally:
        hooks.overrides = before
