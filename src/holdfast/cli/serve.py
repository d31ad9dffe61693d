"""`holdfast serve`: the HTTP API and the dashboard."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from ..core.errors import SERVER, requires
from . import options
from .connect import make_app, parts_of


def serve(
    application: options.Application = None,
    *,
    host: Annotated[str, typer.Option(help="Where to listen. Anything but loopback needs a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8000,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A name by which clients call it; may be given again.")
    ] = None,
    allow_origin: Annotated[
        list[str] | None, typer.Option(help="Where browsers find it, if a proxy changes the Host; may be given again.")
    ] = None,
    allow_shell: Annotated[
        list[str] | None,
        typer.Option(metavar="COMMAND", help="A shell command, word for word, that may be submitted; again for more."),
    ] = None,
    trust_proxy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADDRESS",
            help="A proxy, or a network of proxies, that tells clients' addresses (X-Forwarded-For); again for more.",
        ),
    ] = None,
    trust: Annotated[
        list[str] | None,
        typer.Option(metavar="MODULE", help="Accept tasks named as module:function; again for more."),
    ] = None,
    log_level: Annotated[str | None, typer.Option(help="DEBUG, INFO, WARNING or ERROR.")] = None,
    url: options.Url = None,
) -> None:
    """Serve the dashboard and the HTTP API: submit, look, operate, and claims for workers in any language.

    Loopback is open to this machine's users until there is a token; anything else needs one. SIGTERM or Ctrl-C ends it
    once accepted requests are answered.
    """
    from ..core.settings import combine, from_environment, redact
    from ..http import asgi
    from ..observe.logs import set_up

    flags = {} if log_level is None else {"log_level": log_level}
    settings = combine(flags, from_environment(os.environ), {})
    app = make_app(url, application)
    service = asgi(
        app, hosts=allow_host or (), origins=allow_origin or (), allow_shell=allow_shell or (), trust=trust or ()
    )
    with requires("holdfast serve", "server", *SERVER):
        from ..http.serve import run
    set_up(settings.log_level, settings.log_format)
    run(
        service,
        host,
        port,
        lambda address: print(f"Serving {redact(parts_of(app).url)} on {address}", flush=True),
        settings.grace,
        proxies=trust_proxy or (),
    )
