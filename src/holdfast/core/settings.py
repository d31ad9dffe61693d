"""Settings as one value. Precedence: call > task > flag > environment > the store's config > default.

Every setting has one name: in lower case in Python and in the store's config, as HOLDFAST_NAME in the environment.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from .errors import ConfigError
from .lifecycle import DELAY_LIMIT, Rules
from .retry import Backoff
from .url import redact

DAY = 86400.0
"""Seconds."""
DEFAULT_LEASE, LONG_LEASE = 30.0, 120.0
"""Default lease in seconds: for most stores, and for those where a heartbeat is expensive."""
DEFAULT_CONCURRENCY, ASYNC_CONCURRENCY = 10, 100
"""Slots of a worker process: with tasks that need a thread or a process each, and with async tasks alone."""
MAX_CONCURRENCY = 10_000
"""Slots of one worker: each may need a thread."""
MANUAL_LEASE = 300.0
"""Default lease of a manual claim, in seconds."""
_NUMBER = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?"
_UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": DAY, "w": 7 * DAY}
_SIZES = {"": 1, "b": 1, "k": 1024, "kb": 1024, "kib": 1024, "m": 1024**2, "mb": 1024**2, "mib": 1024**2,
          "g": 1024**3, "gb": 1024**3, "gib": 1024**3}  # fmt: skip


class Settings(msgspec.Struct, frozen=True):
    """The settings of an app and its workers; `repr` hides the secrets."""

    url: str = "sqlite:///holdfast.db"
    lease: float | None = None
    """Seconds; None is the store's own default (30, or 120 on a bucket)."""
    poll: float = 1.0
    grace: float = 6.0
    """Seconds. Together with releasing jobs it stays below the 10 s after which many platforms kill a process."""
    stop_timeout: float | None = None
    """Seconds from SIGTERM to SIGKILL, as configured in the platform; None if unknown."""
    concurrency: int | None = None
    """Jobs that run at the same time in a worker process; None: 10, or 100 if all tasks are async."""
    max_attempts: int = 5
    retry_base: float = 5.0
    retry_factor: float = 2.0
    retry_jitter: float = 2.0
    retry_cap: float = 3600.0
    max_crashes: int = 3
    max_payload: int = 1024**2
    max_output: int = 1024**2
    max_depth: int | None = None
    retention: float = 7 * DAY
    key_retention: float = 7 * DAY
    audit_retention: float = 90 * DAY
    """Seconds for which the audit log keeps an operator action; 0 switches it off."""
    default_result_timeout: float | None = None
    refusal_timeout: float = 3600.0
    """Seconds for which workers refuse a job whose task or arguments they do not know, before it is dead."""
    cloudpickle: bool = False
    secret: tuple[str, ...] = ()
    """The first one signs, all of them are accepted."""
    log_level: str = "INFO"
    log_format: str = "auto"
    task_log_level: str = "INFO"
    """The lowest level that is stored of what tasks print and log; OFF stores nothing."""
    metrics_port: str | None = None
    """Listen address of a supervisor's metrics, as HOST:PORT."""
    metrics_prefix: str = "holdfast"
    """Prefix of all metric names."""
    request_memory: int = 256 * 1024**2
    """Bytes of request bodies that a server buffers at the same time."""
    uvloop: bool = True
    """Whether worker processes and servers use uvloop where it is installed."""
    private_webhooks: bool = False
    """Whether webhooks may be sent to non-public addresses."""
    pass_env: tuple[str, ...] = ()
    """Further environment variables of a worker that shell jobs get: names, or patterns such as AWS_*."""
    release: str = ""
    """The version of the application that workers report, such as a tag or commit."""

    def __repr__(self) -> str:
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:  # a Struct has one, which would show the secrets
        hidden = {"secret": ("***",) * len(self.secret), "url": redact(self.url)}
        return [(name, hidden.get(name, getattr(self, name))) for name in self.__struct_fields__]

    @property
    def rules(self) -> Rules:
        """The part of the settings that decides how claims end."""
        backoff = Backoff(self.retry_base, self.retry_factor, self.retry_jitter, self.retry_cap)
        return Rules(backoff, self.max_crashes, self.retention, self.key_retention, self.refusal_timeout)


def _number(low: float, high: float = math.inf) -> Callable[[Any], float]:
    def parse(value: Any) -> float:
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (ValueError, TypeError):
            number = math.nan
        if math.isnan(number):
            raise ValueError("must be a number")
        if not low <= number <= high or not math.isfinite(number):
            raise ValueError(
                f"must be a finite number of at least {low:g}"
                if high == math.inf
                else f"must be from {low:g} to {high:g}"
            )
        return number

    return parse


def _whole(low: int, high: int = 2**31 - 1) -> Callable[[Any], int]:
    def parse(value: Any) -> int:
        if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
            raise ValueError("must be a whole number")
        try:
            number = int(value)
        except (ValueError, TypeError):
            number = low - 1
        if not low <= number <= high:
            raise ValueError(f"must be a whole number from {low} to {high}")
        return number

    return parse


def _optional(parse: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None or str(value).lower() in ("", "none", "off") else parse(value)


def duration(value: Any) -> float:
    """Seconds from a number, a timedelta, or a text such as `90`, `15m`, `7d`."""
    if hasattr(value, "total_seconds"):
        value = value.total_seconds()
    if isinstance(value, str):
        match = re.fullmatch(rf"\s*({_NUMBER})\s*(ms|[smhdw]?)\s*", value)
        if match is None:
            raise ValueError("must be a duration such as 90 (seconds), 15m or 7d")
        value = float(match[1]) * _UNITS[match[2]]
    return _number(0, DELAY_LIMIT)(value)


def size(value: Any, maximum: int = 2**31 - 1) -> int:
    """Bytes from a number, or a text such as `500000`, `64k`, `1MiB`."""
    if isinstance(value, str):
        match = re.fullmatch(rf"\s*({_NUMBER})\s*([a-zA-Z]*)\s*", value)
        unit = None if match is None else _SIZES.get(match[2].lower())
        if match is None or unit is None:
            raise ValueError("must be a size such as 500000 (bytes), 64k or 1MiB")
        value = int(float(match[1]) * unit)
    return _whole(1, maximum)(value)


def address(value: Any) -> str:
    """HOST:PORT, from a port alone (on localhost) or from both."""
    host, _, port = str(value).rpartition(":")
    if not re.fullmatch(r"\d{1,5}", port) or int(port) > 65535 or isinstance(value, bool):
        raise ValueError("must be a port from 0 to 65535, or HOST:PORT")
    return f"{host or '127.0.0.1'}:{int(port)}"


def _key_retention(value: Any) -> float:
    seconds = duration(value)
    if seconds < DAY:
        raise ValueError("must be at least 24h (so that a late retry of an enqueue finds its key)")
    return seconds


def _metrics_prefix(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[a-zA-Z][a-zA-Z0-9_]{0,63}(?<!_)", value):
        raise ValueError("must be 1 to 64 letters, digits and _, with a letter first and no _ last")
    return value


def _choice(*words: str) -> Callable[[Any], str]:
    def parse(value: Any) -> str:
        if value not in words:
            raise ValueError(f"must be one of {', '.join(words)}")
        return value

    return parse


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if str(value).lower() in ("1", "true", "yes", "on"):
        return True
    if str(value).lower() in ("0", "false", "no", "off", ""):
        return False
    raise ValueError("must be true or false")


def _variables(value: Any) -> tuple[str, ...]:
    names = _texts(value)
    if not all(re.fullmatch(r"[A-Za-z0-9_*?]+", name) for name in names):
        # The message omits the value: it may be NAME=VALUE with a secret.
        raise ConfigError("pass_env must be names of environment variables, without values, or patterns such as AWS_*")
    return names


def _release(value: Any) -> str:
    if not isinstance(value, str) or len(value) > 100 or not value.isprintable():
        raise ValueError("must be a text of up to 100 printable characters")
    return value


def _secrets(value: Any) -> tuple[str, ...]:
    if value is None or value in ("none", "off"):
        return ()
    try:
        return _texts(value)
    except (ValueError, TypeError):  # without what was given
        raise ConfigError(
            "secret must be a string, or a list of strings; in a string, commas separate several secrets"
        ) from None


def _texts(value: Any) -> tuple[str, ...]:
    """Texts, from a sequence of them or one text with commas."""
    several = hasattr(value, "__iter__")
    parts: list[Any] = value.split(",") if isinstance(value, str) else list(value) if several else [value]
    if not all(isinstance(part, str) for part in parts):
        raise ValueError("must be a string, or a list of strings")
    return tuple(filter(None, (part.strip() for part in parts)))


PARSERS: dict[str, Callable[[Any], Any]] = {
    "url": str,
    "lease": _optional(_number(0.1, 7 * DAY)),
    "poll": _number(0.01, 3600),
    "grace": duration,
    "stop_timeout": _optional(duration),
    "concurrency": _optional(_whole(1, MAX_CONCURRENCY)),
    "max_attempts": _whole(0, 1_000_000),
    "retry_base": _number(0),
    "retry_factor": _number(0),
    "retry_jitter": _number(0),
    "retry_cap": duration,
    "max_crashes": _whole(1, 1000),
    "max_payload": size,
    "max_output": size,
    "max_depth": _optional(_whole(1, 2**53)),
    "retention": duration,
    "key_retention": _key_retention,
    "audit_retention": duration,
    "default_result_timeout": _optional(duration),
    "refusal_timeout": duration,
    "cloudpickle": _flag,
    "secret": _secrets,
    "log_level": lambda value: _choice("DEBUG", "INFO", "WARNING", "ERROR")(str(value).upper()),
    "log_format": _choice("auto", "json", "pretty"),
    "task_log_level": lambda value: _choice("DEBUG", "INFO", "WARNING", "ERROR", "OFF")(str(value).upper()),
    "metrics_port": _optional(address),
    "metrics_prefix": _metrics_prefix,
    "request_memory": lambda value: size(value, 2**53),
    "uvloop": _flag,
    "private_webhooks": _flag,
    "pass_env": _variables,
    "release": _release,
}

STORED = [
    "lease", "poll", "grace", "concurrency", "max_attempts", "retry_base", "retry_factor", "retry_jitter", "retry_cap",
    "max_crashes", "max_payload", "max_output", "max_depth", "retention", "key_retention", "refusal_timeout",
    "task_log_level", "audit_retention",
]  # fmt: skip
"""Settings that may be stored for all processes; the others belong to one process."""
ALIASES = {"max_retries": "max_attempts"}
STORED_NAMES = sorted([*STORED, *ALIASES, "backoff_base"])
"""Every name that `holdfast config set` takes."""
SAME = {
    "max_retries": ("max_attempts",),
    "max_attempts": ("max_retries",),
    "backoff_base": ("retry_base", "retry_factor", "retry_jitter"),
}
"""Settings that a stored setting replaces, so that the latest one counts."""
"""Aliases in the stored config. `backoff_base` b means base 1, factor b, no jitter."""


def parse(name: str, value: Any) -> Any:
    """One setting's value in its own type, or a ConfigError that states what it must be."""
    parser = PARSERS.get(name)
    if parser is None:
        raise ConfigError(f"unknown setting {name!r}; known settings: {', '.join(sorted(PARSERS))}")
    try:
        return parser(value)
    except ConfigError:  # has its own message: the value may be a secret
        raise
    except ValueError as error:
        raise ConfigError(f"{name} {error}, not {value!r}") from None


def stored_name(name: str) -> str:
    """A key of the stored config; hyphens equal underscores. ConfigError for an unknown setting."""
    key = str(name).replace("-", "_").lower()
    if key not in STORED_NAMES:
        raise ConfigError(
            f"setting {name!r} cannot be kept in the store; these settings can: {', '.join(STORED_NAMES)}"
        )
    return key


def parse_stored(name: str, value: Any) -> tuple[str, Any]:
    """A key of the stored config with its checked value."""
    key = stored_name(name)
    return key, _checked_base(value) if key == "backoff_base" else parse(ALIASES.get(key, key), value)


def _checked_base(value: Any) -> float:
    try:
        number = _number(0)(value)
    except (ValueError, TypeError):
        raise ConfigError(f"backoff_base must be a finite number of at least 0, not {value!r}") from None
    return int(number) if number.is_integer() else number


def expand_stored(stored: Mapping[str, Any]) -> dict[str, Any]:
    """The stored config as settings; a value that no longer parses is left out, without an error."""
    found: dict[str, Any] = {}
    for name, value in sorted(stored.items(), key=lambda item: item[0] != "backoff_base"):  # more specific ones last
        try:
            key, checked = parse_stored(name, value)
        except ConfigError:
            continue
        if key == "backoff_base":
            found |= {"retry_base": 1.0, "retry_factor": checked, "retry_jitter": 0.0}
        else:
            found[ALIASES.get(key, key)] = checked
    return found


def from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    """The settings that HOLDFAST_* variables give."""
    found: dict[str, Any] = {}
    for name in PARSERS:
        variable = f"HOLDFAST_{name.upper()}"
        if variable in environ:
            try:
                found[name] = parse(name, environ[variable])
            except ConfigError as error:
                raise ConfigError(f"{variable}: {error}") from None
    return found


def combine(given: Mapping[str, Any], environment: Mapping[str, Any], stored: Mapping[str, Any]) -> Settings:
    """One value from the three sources; the first one that has a setting wins."""
    checked = {name: parse(name, value) for name, value in given.items()}
    return Settings(**{**expand_stored(stored), **environment, **checked})
