"""Limits: `limit(…)` declares concurrency, start rate and fair order, and gives each job its limit key."""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol, cast
from uuid import UUID

import msgspec

from ..codec import Arguments, decode_value
from ..core.clock import MICROS
from ..core.errors import ConfigError, InvalidJob
from ..core.job import LimitKey
from ..core.validation import checked_name

Key = str | Callable[..., str | int]
MAX_BOUND = 1_000_000
"""Maximum concurrency, burst, and starts per second."""
MAX_WEIGHT = 100
"""Maximum weight of a limit key: jobs served for each job of a limit key of weight 1."""
_MISSING = object()
MAX_BURST_SPAN = 366 * 86400 * MICROS
"""A burst must be used up, at its rate, within this."""
MAX_LIMIT_NAME = 160
"""Characters of a limit key's name: every store can index this many."""
_CUT = "…"
"""Mark in the names of shortened limit keys, before the digest of the whole name."""
_RATE = re.compile(r"\s*(\d{1,9})\s*/\s*(\d{0,6})\s*(s|sec|min|h|hour|d|day)\s*")
_UNITS = {"s": 1, "sec": 1, "min": 60, "h": 3600, "hour": 3600, "d": 86400, "day": 86400}
_QUOTED = str.maketrans({mark: f"%{ord(mark):02X}" for mark in "%/@#"})


class LimitedTask(Protocol):
    """What a limit needs of a task."""

    name: str
    codec: Any
    arguments: Arguments

    def decode(self, payload: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]: ...


class Limit(msgspec.Struct, frozen=True):
    """What jobs with the same key share. Made by `limit(…)`, which checks it; 0 means unlimited."""

    key: Key | None
    takes: tuple[str, ...] | None
    """The arguments of a key function; None: all of them."""
    name: str | None
    concurrency: int
    interval: int
    burst: int
    weight: int | Callable[[Any], int]

    def check(self, task: LimitedTask) -> None:
        """ConfigError if the key uses a parameter that the task does not have."""
        names = self.takes if callable(self.key) else None if self.key is None else (self.key.partition(".")[0],)
        for name in names or ():
            if not task.arguments.takes(name):
                raise ConfigError(
                    f"task {task.name!r}: the key of its limit names parameter {name!r}, which the task does not have:"
                    " correct limit(key=…)"
                )

    def limit_key(self, name: str, task: LimitedTask | None, payload: bytes) -> LimitKey:
        """The limit key of a call of the task `name`, which may be unknown here."""
        return self._limit_key(name.translate(_QUOTED), f"task {name!r}", task, payload)

    def limit_key_in_queue(self, queue: str, name: str, task: LimitedTask | None, payload: bytes) -> LimitKey:
        """The limit key of the same call, if this is the limit of its queue."""
        return self._limit_key("#" + queue.translate(_QUOTED), f"task {name!r} in queue {queue!r}", task, payload)

    def _limit_key(self, owner: str, what: str, task: LimitedTask | None, payload: bytes) -> LimitKey:
        if self.name is not None:
            owner = "@" + self.name.translate(_QUOTED)
        weight = self.weight
        if self.key is not None:
            value = self._value(what, task, payload)
            owner = f"{owner}/{value}"
            if callable(weight):
                weight = _answer(f"{what}: the weight function of its limit", weight, value)
                if type(weight) is not int or not 1 <= weight <= MAX_WEIGHT:
                    raise InvalidJob(
                        f"{what}: the weight of its limit for key {value!r:.100} must be a whole number from 1 to"
                        f" {MAX_WEIGHT}, not {weight!r:.100}"
                    )
        return LimitKey(_bounded(owner), self.concurrency, self.interval, self.burst, cast("int", weight))

    def _value(self, what: str, task: LimitedTask | None, payload: bytes) -> str | int | UUID:
        key, given = self.key, self._arguments(what, task, payload)
        value: Any = given
        if callable(key):
            value = _answer(f"{what}: the key function of its limit", key, **_some(given, self.takes))
        else:
            for part in (key or "").split("."):
                value = _part(value, part)
        if value is _MISSING:
            raise InvalidJob(f"{what}: its payload has no {key!r}, the key of its limit; pass this argument")
        if not isinstance(value, str | int | UUID):
            shown = "" if callable(key) else f" {key!r}"
            raise InvalidJob(
                f"{what}: its limit's key{shown} must be text, a whole number or a UUID, not {value!r:.100}"
            )
        return value

    def _arguments(self, what: str, task: LimitedTask | None, payload: bytes) -> Mapping[str, Any]:
        """The call's arguments by name: for a function decoded, for a path as they are stored."""
        if task is not None and (callable(self.key) or task.codec is not None):
            return task.arguments.named(*task.decode(payload))
        try:
            stored = decode_value(payload)
        except InvalidJob:
            stored = None
        if not isinstance(stored, dict):
            raise InvalidJob(
                f"{what}: the key of its limit needs a payload that is a JSON object; submit JSON, or use a limit"
                " without key="
            )
        return {**(task.arguments.defaults if task is not None else {}), **cast("dict[str, Any]", stored)}


def limit(
    *,
    key: Key | None = None,
    concurrency: int | None = None,
    rate: str | None = None,
    burst: int | None = None,
    weight: int | Callable[[Any], int] | None = None,
    name: str | None = None,
) -> Limit:
    """A limit for `app.task(limit=…)`, over all workers of the store.

    `key`: a parameter of the task (`"customer_id"`, `"order.customer"`) or a function of some of them; jobs with the
    same value share a limit key, and keys are served round-robin, by weight. `concurrency`: running jobs. `rate`:
    starts such as `"100/min"`, `"5/s"` or `"2/10s"`, evenly spread, or `burst` of them at once. `weight`: jobs served
    for each job of another limit key, or a function of the key's value. `name`: share the limit key with all limits of
    the same name.
    """
    if key is None and concurrency is None and rate is None:
        raise ConfigError("limit() sets no limit: pass concurrency=, rate= or key=")
    if key is not None and not callable(key) and not (isinstance(key, str) and all(key.split("."))):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(
            f"limit(key=…) must be the name of a parameter, a dotted path or a function, not {key!r:.100}"
        )
    if burst is not None and rate is None:
        raise ConfigError("limit(burst=…) requires rate=")
    if callable(weight) and key is None:
        raise ConfigError("limit(weight=…) as a function requires key=: it is called with the key's value")
    if not (weight is None or callable(weight)):
        weight = _count(weight, "weight", MAX_WEIGHT)
    interval, starts = 0 if rate is None else _interval(rate), _count(1 if burst is None else burst, "burst", MAX_BOUND)
    if interval * starts > MAX_BURST_SPAN:
        raise ConfigError(
            f"limit(rate={rate!r}, burst={burst}): a burst of this size takes more than one year at this rate:"
            " lower burst= or raise rate="
        )
    return Limit(
        key,
        _asked(key) if callable(key) else None,
        None if name is None else checked_name(name, "limit"),
        0 if concurrency is None else _count(concurrency, "concurrency", MAX_BOUND),
        interval,
        starts,
        weight or (0 if key is None else 1),
    )


def given_limit(given: Any, what: str = "limit=") -> Limit:
    if not isinstance(given, Limit):
        raise InvalidJob(f"{what} must be made by holdfast.limit(…), such as limit(concurrency=2), not {given!r:.100}")
    return given


def given_limits(given: Any) -> dict[str, Limit]:
    if not isinstance(given, Mapping):
        raise ConfigError(f"queue_limits= must be a dict of limits by queue name, not {given!r:.100}")
    limits = cast("Mapping[Any, Any]", given)
    return {
        checked_name(name, "queue"): given_limit(one, f"queue_limits=: the limit of queue {name!r}")
        for name, one in limits.items()
    }


def _count(value: Any, what: str, maximum: int) -> int:
    if type(value) is not int or not 1 <= value <= maximum:
        raise ConfigError(f"limit({what}=…) must be a whole number from 1 to {maximum}, not {value!r:.100}")
    return value


def _interval(rate: Any) -> int:
    """Microseconds between two starts; rounded up, so that the rate is never exceeded."""
    found = _RATE.fullmatch(rate) if isinstance(rate, str) else None
    if found is not None:
        count, period = int(found[1]), int(found[2] or 1) * _UNITS[found[3]] * MICROS
        if count and period and count * MICROS <= MAX_BOUND * period:
            return -(-period // count)
    raise ConfigError(
        f"limit(rate=…) must be text such as '100/min', '5/s', '1000/h' or '2/10s', at most {MAX_BOUND}/s,"
        f" not {rate!r:.100}"
    )


def _asked(key: Callable[..., Any]) -> tuple[str, ...] | None:
    try:
        parameters = inspect.signature(key).parameters.values()
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"limit(key={key!r:.100}): its parameters cannot be inspected ({error}): use a function written in Python"
        ) from None
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        return None
    if any(one.kind in (one.POSITIONAL_ONLY, one.VAR_POSITIONAL) for one in parameters):
        raise ConfigError(
            f"limit(key={key!r:.100}): a key function gets arguments of the task by name: remove its positional-only"
            " parameters and *args"
        )
    return tuple(one.name for one in parameters)


def _answer(what: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The result of a user's function; any exception rejects the job."""
    try:
        return function(*args, **kwargs)
    except Exception as error:
        raise InvalidJob(
            f"{what} raised {type(error).__name__}: {error}; the job was not stored: correct the function"
        ) from error


def _some(given: Mapping[str, Any], names: tuple[str, ...] | None) -> Mapping[str, Any]:
    return given if names is None else {name: given[name] for name in names if name in given}


def _part(value: Any, name: str) -> Any:
    if isinstance(value, Mapping):
        return cast("Mapping[str, Any]", value).get(name, _MISSING)
    return getattr(value, name, _MISSING)


def _bounded(name: str) -> str:
    """A unique name of a limit key that every store can keep."""
    if len(name) <= MAX_LIMIT_NAME and name.isprintable() and _CUT not in name:
        return name
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    head = "".join(letter if letter.isprintable() else "?" for letter in name[: MAX_LIMIT_NAME - 33])
    return f"{head}{_CUT}{digest}"
