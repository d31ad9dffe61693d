"""A measured process's half of the talk: one request as its argument, JSON lines on stdout, a line on stdin means go.

Only the standard library: this runs in the peers' environments too.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Callable
from typing import Any


def say(**values: Any) -> None:
    print(json.dumps(values), flush=True)


def wait_for_go() -> None:
    """Tell that all is set up, and wait for the word."""
    say(ready=True)
    sys.stdin.readline()


def wait_for_stop() -> None:
    sys.stdin.readline()


def text(size: int) -> str:
    """Text that does not compress, as large payloads often are."""
    return base64.b64encode(os.urandom(size)).decode()[:size]


def serve(commands: dict[str, Callable[..., dict[str, Any]]]) -> None:
    """Do what the request asks for, and say what came of it."""
    request = json.loads(sys.argv[1])
    say(**commands[request.pop("do")](**request))
