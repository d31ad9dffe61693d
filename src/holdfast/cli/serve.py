"""`holdfast serve`: serve the HTTP API and the dashboard."""

from __future__ import annotations

import logging
import os
from typing import Annotated

import typer

from ..core.errors import SERVER, requires
from . import garbage, options
from .connect import make_app, parts_of


def serve(
    *,
    imports: options.Imports = None,
    discover: options.Discover = None,
    host: Annotated[str, typer.Option(help="Address to listen on. Non-loopback needs a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on. 0: any free port.")] = 8000,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A host name accepted in the Host header; repeatable.")
    ] = None,
    allow_origin: Annotated[
        list[str] | None, typer.Option(help="An origin accepted from browsers, if a proxy changes Host; repeatable.")
    ] = None,
    allow_shell: Annotated[
        list[str] | None,
        typer.Option(metavar="COMMAND", help="A shell command, exact text, that may be submitted; repeatable."),
    ] = None,
    trust_proxy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADDRESS",
            help="Address or network of a proxy whose X-Forwarded-For is trusted; repeatable.",
        ),
    ] = None,
    trust: Annotated[
        list[str] | None,
        typer.Option(metavar="MODULE", help="Accept tasks named module:function of this module; repeatable."),
    ] = None,
    access_log: Annotated[
        bool, typer.Option("--access-log", help="Log every request: method, path, sender, status, duration.")
    ] = False,
    log_level: Annotated[str | None, typer.Option(help="DEBUG, INFO, WARNING or ERROR.")] = None,
    url: options.Url = None,
) -> None:
    """Serve the dashboard and the HTTP API: submit, inspect and operate jobs; claims for workers in any language.

    On loopback no token is needed until one is created; any other address needs one. SIGTERM or Ctrl-C stops the
    server after accepted requests are answered.
    """
    from ..core.settings import combine, from_environment, redact
    from ..http import asgi
    from ..observe.logs import set_up

    flags = {} if log_level is None else {"log_level": log_level}
    settings = combine(flags, from_environment(os.environ), {})
    app = make_app(url, imports or (), discover or ())
    service = asgi(
        app, hosts=allow_host or (), origins=allow_origin or (), allow_shell=allow_shell or (), trust=trust or ()
    )
    with requires("holdfast serve", "server", *SERVER):
        from ..http.serve import run
    set_up(settings.log_level, settings.log_format)
    if access_log:
        parts_of(app).events.levels["http_request"] = logging.INFO
    garbage.resume()
    run(
        service,
        host,
        port,
        lambda address: print(f"Serving {redact(parts_of(app).url)} on {address}", flush=True),
        settings.grace,
        proxies=trust_proxy or (),
    )
