"""Servers of a test's own, on SQLite, and stores that reach them."""

from __future__ import annotations

import pytest
import pytest_asyncio

from holdfast import Holdfast

pytest.importorskip("aiohttp")
pytest.importorskip("uvicorn")

from support.serving import Serving


@pytest_asyncio.fixture
async def serve(tmp_path):
    """Starts servers on this loop; all that still run are stopped after the test."""
    started: list[Serving] = []

    async def serve_(url: str | None = None, **options) -> Serving:
        app = Holdfast(url or f"sqlite:///{tmp_path}/jobs.db")
        serving = await Serving(app, **options).start()
        started.append(serving)
        return serving

    yield serve_
    for each in reversed(started):
        await each.stop()


@pytest_asyncio.fixture
async def serving(serve):
    return await serve()


@pytest_asyncio.fixture
async def store(serving, open_at):
    return await open_at(serving.url)
