"""What a schedule finds in place of the machine it runs on, so that nothing but its seed decides what becomes of it.

The names of host and process are part of what is written, and so of its length; the environment has settings. How a
task's calls are written is the same in all processes, and is worked out once for all of them: there are many.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from holdfast import parts
from holdfast.client import session
from holdfast.codec import Arguments, Returns
from holdfast.tasks import durable_steps as remember
from holdfast.tasks import task

_worked_out: dict[Any, Any] = {}


def _once(make: Callable[..., Any], fn: Callable[..., Any], **options: Any) -> Any:
    key = (make, fn.__code__, *options.values())
    if key not in _worked_out:
        _worked_out[key] = make(fn, **options)
    return _worked_out[key]


PROPS: tuple[tuple[Any, str, Any], ...] = (
    (socket, "gethostname", lambda: "host"),
    (os, "getpid", lambda: 1),
    (parts, "from_environment", lambda _: {}),
    (session, "from_environment", lambda _: {}),
    (task, "Arguments", partial(_once, Arguments)),
    (task, "Returns", partial(_once, Returns)),
    (remember, "Returns", partial(_once, Returns)),
)


@contextmanager
def staged() -> Iterator[None]:
    """All of it, for as long as a schedule takes."""
    real = [getattr(where, name) for where, name, _ in PROPS]
    for where, name, prop in PROPS:
        setattr(where, name, prop)
    try:
        yield
    finally:
        for (where, name, _), was in zip(PROPS, real, strict=True):
            setattr(where, name, was)
