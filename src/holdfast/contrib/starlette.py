"""Holdfast in a Starlette application: a lifespan, and the dashboard and HTTP API behind the application's login."""

from __future__ import annotations

import asyncio
import inspect
import logging
import signal
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from types import FrameType
from typing import Any

from ..app import Holdfast, parts_of
from ..core.errors import SERVER, ConfigError, InvalidJob, requires
from ..http import asgi
from ..tasks.handle import Handle
from ..worker.worker import Worker

with requires("holdfast.contrib.starlette", "server", *SERVER):
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import Response, StreamingResponse
    from starlette.types import Lifespan, Receive, Scope, Send, StatefulLifespan, StatelessLifespan

    from ..http import sse
    from ..http.service import Service

logger = logging.getLogger("holdfast")
Guard = Callable[[Request], Awaitable[Response | None] | Response | None]


def lifespan(
    queue: Holdfast, *own: Lifespan[Any], worker: Callable[[Holdfast], Worker] | None = None
) -> StatefulLifespan[Any]:
    """A lifespan that opens the app, then enters your `own` ones in order; `request.state.holdfast` is the app.

    `worker`: makes a worker that runs jobs in this process, such as `Worker` or `partial(Worker, concurrency=5)`. It
    starts after your own lifespans and stops before they end. Under `holdfast.testing.on_memory` it does not start.
    """
    _check(queue, worker)

    @asynccontextmanager
    async def life(application: Any) -> AsyncGenerator[dict[str, Any]]:
        state: dict[str, Any] = {}
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(queue)
            for one in own:
                state |= await stack.enter_async_context(one(application)) or {}
            if worker is not None and not parts_of(queue).runtime.in_test:
                await stack.enter_async_context(_working(worker(queue)))
            yield {**state, "holdfast": queue}

    return life


def _check(queue: object, worker: object) -> None:
    if not isinstance(queue, Holdfast):
        raise ConfigError(
            f"lifespan(…) needs your Holdfast app, not {queue!r:.100}: write lifespan=lifespan(queue), and your own"
            " lifespans after the app"
        )
    if worker is not None and (isinstance(worker, Worker) or not callable(worker)):
        raise ConfigError(
            f"worker= is {worker!r:.100}, not a class or function: write worker=Worker, or worker=partial(Worker,"
            " concurrency=5)"
        )


@asynccontextmanager
async def _working(worker: Worker) -> AsyncGenerator[None]:
    task = asyncio.create_task(worker.run())
    task.add_done_callback(_log_failure)
    try:
        yield
    finally:
        worker.stop()
        await asyncio.wait([task])


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error(
            "the worker in this process has ended, so no job runs here; correct the error and restart the application:"
            " %s",
            error,
            exc_info=error,
        )


async def stream_response(handle: Handle[Any], request: Request) -> Response:
    """The chunks that a job emits, as server-sent events: for `EventSource` in a browser, which reconnects and resumes.

    Events: `chunk`, whose data is a Chunk as JSON, and `end` with the job's `status`; then the page closes its
    EventSource. Check before that the request may read the job. Raises JobNotFound; a request with a wrong
    Last-Event-ID is answered with 422.
    """
    try:
        position = sse.resumed_at(request.headers.get("last-event-id"))
    except InvalidJob as error:
        raise HTTPException(422, str(error)) from None
    await sse.checked(handle, position)
    events = sse.alive(sse.chunk_events(handle, position))
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)


class Dashboard:
    """The dashboard and the HTTP API, to be mounted: `Mount("/queue", board)`, with `lifespan(queue, board.lifespan)`.

    `guard` gets each request and returns None to allow everything, or the response that refuses the request, such as a
    redirect to your login page; it may raise HTTPException, and may be async. It names the user for the audit log with
    `request.scope["holdfast.actor"] = …`. `hosts`, `origins`: see `holdfast.http.asgi`.
    """

    def __init__(
        self, queue: Holdfast, guard: Guard, *, hosts: Sequence[str] = (), origins: Sequence[str] = ()
    ) -> None:
        self._guard = guard
        self._service = asgi(queue, unguarded=True, hosts=hosts, origins=origins)
        self.lifespan = serving(self._service)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._guard(Request(scope)) if scope["type"] == "http" else None
        if inspect.isawaitable(refusal):
            refusal = await refusal
        if refusal is not None and not isinstance(refusal, Response):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(
                f"the guard of the dashboard returned {refusal!r:.100}, so the request was refused: return None to"
                " allow it, or a response"
            )
        await (self._service if refusal is None else refusal)(scope, receive, send)


def serving(service: Service) -> StatelessLifespan[Any]:
    """The lifespan of a mounted service."""

    @asynccontextmanager
    async def life(_: Any) -> AsyncGenerator[None]:
        async with service:
            with _streams_end_with_the_server(service):
                yield

    return life


@contextmanager
def _streams_end_with_the_server(service: Service) -> Generator[None]:
    """End the streams at the signal that stops the server: it waits for open responses before it ends the lifespan."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def stop(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(service.stop)
        handler = before[signal.Signals(number)]
        assert callable(handler)
        handler(number, frame)

    handled = [number for number, handler in before.items() if callable(handler)]
    for number in handled:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in handled:
            if signal.getsignal(number) is stop:
                signal.signal(number, before[number])
