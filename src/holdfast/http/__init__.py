"""The HTTP service as an ASGI app: jobs, claims, inspection and operations for programs in any language."""

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
    """The HTTP service of an app, to be run by any ASGI server or mounted in another application.

    A request needs `token` (default: HOLDFAST_TOKEN) or a token made by `holdfast token create`. With `unguarded` no
    token is checked: use it only if your application authenticates requests. `hosts`: accepted Host names besides IP
    addresses, localhost and this machine's name ("*": any). `origins`: accepted browser origins if a proxy changes the
    Host. `allow_shell`: shell commands, exact text, that may be submitted. `trust`: modules whose functions may be
    named as tasks (`module:name`).
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
