"""Reads the usual options of `holdfast enqueue` without typer, whose import would take a tenth of the command."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ..tasks.options import JOB_OPTIONS

OTHERS = ("task", "args", "cwd", "url")
"""Options of the command that are not job options of this name."""
NOT_TEXT = ("connection", "limit", "meta", "retry", "tags")
"""Job options that have no option of this name, or another kind of value."""
NAMES = {f"--{name.replace('_', '-')}": name for name in {*JOB_OPTIONS, *OTHERS} - {*NOT_TEXT}} | {"-q": "queue"}
NUMBERS = {"--priority": "priority", "--max-retries": "max_retries", "--max-attempts": "max_retries"}
LISTS = {"--tag": "tag", "--env": "env"}
FLAGS = {"--json": "as_json", "--replace": "replace"}


def quick_parameters(arguments: Sequence[str]) -> dict[str, Any] | None:
    """The parameters of a command line `enqueue …`; None if typer must read it: help, a mistake, a rare option."""
    if arguments[:1] != ["enqueue"] or "_HOLDFAST_COMPLETE" in os.environ:
        return None
    found: dict[str, Any] = {}
    words: list[str] = []
    left = list(arguments[:0:-1])
    while left:
        option, given, value = (word := left.pop()).partition("=")
        if word == "--":
            words += left[::-1]
            break
        if word[:1] != "-" or word == "-":
            words.append(word)
        elif word in FLAGS:
            found[FLAGS[word]] = True
        elif option in NAMES or option in NUMBERS or option in LISTS:
            if not given and not left:
                return None
            value = value if given else left.pop()
            if value[:1] == "-" or (option == "-q" and given):
                return None
            if option in LISTS:
                found.setdefault(LISTS[option], []).append(value)
            elif option not in NUMBERS:
                found[NAMES[option]] = value
            elif value.isascii() and value.isdecimal():
                found[NUMBERS[option]] = int(value)
            else:
                return None
        else:
            return None
    return {**found, "words": words or None}
