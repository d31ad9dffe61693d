"""Finds the resource of a request by its path."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import quote, unquote

from starlette.types import Scope

from .endpoint import Resource


class Router:
    """The resources of a service, in the order in which they are tried; literal paths come first.

    1. A resource with the request's method is preferred to one that only matches the path.
    2. The path is matched with its escapes, so that a job's id may contain a slash (`%2F`).
    3. A trailing slash is ignored.
    """

    def __init__(self, resources: Sequence[Resource], otherwise: Resource) -> None:
        self._otherwise = otherwise
        self._literal = {_bare(one.path): one for one in resources if "{" not in one.path}
        self._patterns = [(_pattern(one.path), one) for one in resources if "{" in one.path]

    def find(self, scope: Scope) -> Resource:
        """The resource of a request. Puts the path's parameters into its scope."""
        path, method = _bare(_written(scope)), scope["method"]
        scope["path_params"] = {}
        found = self._literal.get(path)
        if found is not None and method in found.methods:
            return found
        for pattern, resource in self._patterns:
            match = pattern.fullmatch(path)
            if match is not None and (found is None or method in resource.methods):
                found = resource
                scope["path_params"] = {name: unquote(value) for name, value in match.groupdict().items()}
                if method in resource.methods:
                    break
        return self._otherwise if found is None else found


def _bare(path: str) -> str:
    return path.removesuffix("/")


def _pattern(path: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", path))


def _written(scope: Scope) -> str:
    """A request's path below the mount point, with its escapes as received."""
    raw: bytes | None = scope.get("raw_path")
    whole = quote(scope["path"]) if raw is None else raw.decode("latin-1")
    root = scope.get("root_path")
    return whole.removeprefix(quote(root)) if root else whole
