"""The HTTP service, as an ASGI app: jobs, claims and all one can ask of a queue, for programs in any language."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..core.errors import SERVER, requires

if TYPE_CHECKING:
    from ..app import Holdfast
    from .service import Service


def asgi(
    app: Holdfast,
    *,
    token: str | None = None,
    unguarded: bool = False,
    hosts: Sequence[str] = (),
    origins: Sequence[str] = (),
    allow_shell: Sequence[str] = (),
    trust: Sequence[str] = (),
) -> Service:
    """The service on an app, to be run by any ASGI server or mounted in your own application.

    Closed by default: a request needs `token` (HOLDFAST_TOKEN unless given) or one that `holdfast token create` made.
    With `unguarded`, whoever reaches it may do everything: for when your own application asks who is there. `hosts`
    are the names it is called by, beside addresses, localhost and this machine's own ("*": any); `origins` where
    browsers find its pages, if a proxy changes the Host; `allow_shell` the shell commands, word for word, that may be
    submitted; `trust` the modules whose functions may be named as tasks (`module:name`).
    """
    with requires("the HTTP service", "server", *SERVER):
        from .service import Service
    return Service(
        app,
        token=token,
        unguarded=unguarded,
        hosts=hosts,
        origins=origins,
        allow_shell=frozenset(allow_shell),
        trust=frozenset(trust),
    )
