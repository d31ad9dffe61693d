"""Parse a job from user-written JSON. Unknown keys and values of the wrong type raise InvalidJob with one line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast, get_args, get_type_hints

import msgspec

from ..core.errors import InvalidJob
from ..core.job import SHELL_TASK
from ..tasks.options import JOB_OPTIONS, JobOptions

if TYPE_CHECKING:
    from ..app import Holdfast
    from ..tasks.task import Call

SHELL_KEYS = ("command", "cwd", "env", "stdin")
SPELLED = {"at": "run_at", "retry": "backoff_base"}
"""Options with another name in a job's JSON."""
NOT_IN_JSON = {"connection": "it is an object of a program", "limit": "it may contain a function"}
"""Options that JSON cannot express, with the reason."""
OPTIONS = [SPELLED.get(name, name) for name in JOB_OPTIONS if name not in NOT_IN_JSON]
ALIASES = {"cmd": "command", "max_retries": "max_attempts", "run_at": "at"}
KNOWN = [*SHELL_KEYS, "cmd", "task", "args", *OPTIONS, "max_retries"]


JOB = 'an object such as {"command": "echo hi"}'
ARGUMENTS = "a list or an object, such as [1, 2]"
"""What a JSON text must be, for error messages."""


def parsed(text: str | bytes, where: str = "", wanted: str = JOB) -> Any:
    """Decode JSON; InvalidJob if it is malformed. `where` is the prefix of the error message."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        reason = str(error).replace("JSON is malformed: ", "")
        raise InvalidJob(f"{where}invalid JSON: {reason}; write {wanted}") from None


def read(text: str | bytes, where: str = "") -> dict[str, Any]:
    """Decode one JSON object; InvalidJob for anything else."""
    given = parsed(text, where)
    if not isinstance(given, dict):
        raise InvalidJob(f'{where}a job must be a JSON object such as {{"command": "echo hi"}}, not {_kind(given)}')
    return given  # pyright: ignore[reportUnknownVariableType]


def call(app: Holdfast, given: dict[str, Any], where: str = "") -> Call[Any]:
    """The call that a JSON object describes: a shell command, or a task by name with its arguments."""
    try:
        return _call(app, given)
    except InvalidJob as error:
        raise InvalidJob(f"{where}{error}") from None if where else error


def _call(app: Holdfast, given: dict[str, Any]) -> Call[Any]:
    unknown = sorted(set(given) - set(KNOWN))
    if unknown:
        raise InvalidJob(
            f"the job has unknown fields: {', '.join(map(repr, unknown))}; known fields: {', '.join(KNOWN)}"
        )
    fields: dict[str, Any] = {}
    for key, value in given.items():
        name = ALIASES.get(key, key)
        if name in fields:
            raise InvalidJob(
                f"{key!r} is given twice ('cmd' is 'command', 'max_retries' is 'max_attempts'): remove one"
            )
        if value is not None:
            fields[name] = value
    task, args = fields.pop("task", None), fields.pop("args", None)
    shell = {key: fields.pop(key) for key in SHELL_KEYS if key in fields}
    if task is None or task == SHELL_TASK:
        if args is not None:
            raise InvalidJob("'args' needs 'task'; a shell job takes 'command' instead")
        task, args = SHELL_TASK, _checked_shell(shell)
    elif shell:
        unwanted = ", ".join(map(repr, shell))
        raise InvalidJob(f"only shell jobs can have {unwanted}, not a job of task {task!r}: remove {unwanted}")
    positional, named = _checked_args(args)
    made = app.call(_text(task, "task"), *positional, **named)
    made.options = made.options.changed(_options(fields))
    return made


def _checked_shell(shell: dict[str, Any]) -> dict[str, Any]:
    command = shell.get("command")
    if not isinstance(command, str) or not command.strip():
        raise InvalidJob('a shell job needs a \'command\', such as {"command": "echo hi"}')
    for name in ("cwd", "stdin"):
        if name in shell:
            _text(shell[name], name)
    env = shell.get("env", {})
    if not isinstance(env, dict) or not all(isinstance(value, str) and "=" not in key for key, value in env.items()):  # pyright: ignore[reportUnknownVariableType]
        raise InvalidJob(
            f'\'env\' must be an object of strings, with no = in a name, such as {{"LANG": "C"}}, not {env!r:.100}'
        )
    if "\0" in command or any("\0" in text for pair in env.items() for text in pair):  # pyright: ignore[reportUnknownVariableType]
        raise InvalidJob("a command and its environment cannot contain NUL characters; remove them")
    return shell


def _checked_args(args: Any) -> tuple[list[Any], dict[str, Any]]:
    if args is None:
        return [], {}
    if isinstance(args, list):
        return args, {}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(args, dict):
        return [], args  # pyright: ignore[reportUnknownVariableType]
    raise InvalidJob(f"'args' must be a list, or an object of named arguments, not {_kind(args)}")


def _options(fields: dict[str, Any]) -> JobOptions:
    """Job options from JSON fields, each converted to its Python type."""
    if "backoff_base" in fields:
        from ..core.retry import Backoff
        from ..core.settings import parse_stored

        fields["retry"] = Backoff(1.0, float(parse_stored("backoff_base", fields.pop("backoff_base"))[1]), 0.0)
    kinds = get_type_hints(JobOptions)
    return cast("JobOptions", {name: _option(name, value, get_args(kinds[name])) for name, value in fields.items()})


def _option(name: str, value: Any, kinds: tuple[Any, ...]) -> Any:
    if datetime in kinds and (timedelta not in kinds or (isinstance(value, str) and "-" in value[1:])):
        return moment(value, SPELLED.get(name, name))
    if timedelta in kinds:
        late = ", or a time such as 2030-01-31T12:00:00Z" if datetime in kinds else ""
        return value if name == "unique" and value in ("until_start", "until_end") else _seconds(value, name, late)
    if str in kinds:
        return _text(value, name)
    if bool in kinds and not isinstance(value, bool):
        raise InvalidJob(f"{name!r} must be true or false, not {value!r:.50}")
    return [value] if name == "tags" and isinstance(value, str) else value


def _seconds(value: Any, name: str, also: str = "") -> Any:
    if isinstance(value, bool | list | dict):
        raise InvalidJob(f"{name!r} must be a number of seconds, not {value!r:.50}")
    if not isinstance(value, str):
        return value
    from ..core.settings import duration

    try:
        return duration(value)
    except ValueError:
        modes = "'until_start', 'until_end', " if name == "unique" else ""
        raise InvalidJob(
            f"{name!r} must be {modes}a number of seconds, or a duration such as 15m{also}, not {value!r}"
        ) from None


def moment(value: Any, name: str = "run_at") -> datetime:
    """A time from ISO 8601 with a zone, or from epoch seconds."""
    try:
        if isinstance(value, str) and value.isdecimal() and len(value) > len("20300131"):
            value = int(value)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value, UTC)
        at = datetime.fromisoformat(cast("str", value))
    except (TypeError, ValueError, OverflowError, OSError):
        raise InvalidJob(
            f"{name} must be a time such as 2030-01-31T12:00:00Z, or epoch seconds, not {value!r}"
        ) from None
    if at.tzinfo is None:
        raise InvalidJob(f"{name} needs a time zone: {at.isoformat()}Z, or {at.isoformat()}+01:00")
    return at


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise InvalidJob(f"{name!r} must be a string, not {_kind(value)}")
    return value


def _kind(value: Any) -> str:
    for kinds, name in _KINDS:
        if isinstance(value, kinds):
            return name
    return "null"


_KINDS: list[tuple[Any, str]] = [
    (bool, "true or false"),
    ((int, float), "a number"),
    (str, "a string"),
    (list, "a list"),
    (dict, "an object"),
]
