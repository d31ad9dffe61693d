"""`holdfast demo`: a demonstration of crash recovery on a temporary SQLite file."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from ..core.errors import SERVER, requires


def demo(
    *,
    dashboard: Annotated[bool, typer.Option("--dashboard", help="Serve the dashboard until Ctrl-C.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the dashboard. 0: any free port.")] = 0,
) -> None:
    """Run a few dozen jobs on a temporary SQLite file, kill a worker that runs one, and watch the job recover.

    With --dashboard: an endless stream of jobs, and a button that kills a worker.
    """
    if dashboard:
        _serve(port)
        return
    from ..demo.show import show

    show()


def _serve(port: int) -> None:
    with requires("holdfast demo --dashboard", "server", *SERVER):
        from ..http import demo as killing
        from ..http.serve import run
        from ..http.service import Service
    from ..demo.show import end_workers, start_workers
    from ..demo.stream import stream

    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as folder:
        os.environ["HOLDFAST_URL"] = f"sqlite:///{Path(folder) / 'demo.db'}"
        os.environ.pop("HOLDFAST_TOKEN", None)  # listens on loopback only, on a temporary file
        from ..demo.tasks import app

        service = Service(app, extra=killing.endpoints())
        running: list[asyncio.Task[None]] = []

        def begin(address: str) -> None:
            print(f"The dashboard is at {address}   (Ctrl-C stops the demo)", flush=True)
            running.append(asyncio.create_task(stream(app, service.stopping.is_set)))

        workers = start_workers()
        try:
            run(service, "127.0.0.1", port, begin, grace=2.0)
        finally:
            end_workers(workers)
