"""Fixtures: a service on a fresh SQLite file, open on loopback; tests can start more."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from holdfast import Holdfast
from support.http import Client, serving


@pytest.fixture
def app_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/jobs.db?synchronous=normal"


@pytest_asyncio.fixture
async def http(app: Holdfast) -> AsyncIterator[Client]:
    """A client of a service on the test's app."""
    async with serving(app) as client:
        yield client


@pytest_asyncio.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session
