"""`django.tasks` of Django 6, or its backport `django-tasks` on Django 5.2."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import django

_six = django.VERSION[0] >= 6
_tasks = "django.tasks" if _six else "django_tasks"
_base: Any = import_module(f"{_tasks}.base")
_exceptions: Any = import_module(f"{_tasks}.exceptions")
_signals: Any = import_module(f"{_tasks}.signals")

BaseTaskBackend: Any = import_module(f"{_tasks}.backends.base").BaseTaskBackend
Task: Any = _base.Task
TaskContext: Any = _base.TaskContext
TaskError: Any = _base.TaskError
TaskResult: Any = _base.TaskResult
TaskResultStatus: Any = _base.TaskResultStatus
InvalidTask: Any = getattr(_exceptions, "InvalidTask", None) or _exceptions.InvalidTaskError  # its name until 0.12
TaskResultDoesNotExist: Any = _exceptions.TaskResultDoesNotExist
task_enqueued, task_started, task_finished = _signals.task_enqueued, _signals.task_started, _signals.task_finished
normalize_json: Any = import_module("django.utils.json" if _six else "django_tasks.utils").normalize_json
