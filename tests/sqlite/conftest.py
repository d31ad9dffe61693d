"""A store on a real file, opened for one test."""

import contextlib
import os
import subprocess
import sys

import pytest

from holdfast.store.sqlite import SqliteStore


@pytest.fixture
def path(tmp_path):
    return tmp_path / "jobs.db"


@pytest.fixture
async def open_store(path):
    """Open a store on the test's file; it is closed after the test."""
    async with contextlib.AsyncExitStack() as stack:

        async def open_store(**options):
            store = SqliteStore(options.pop("path", path), **options)
            await store.open()
            stack.push_async_callback(store.close)
            return store

        yield open_store


@pytest.fixture
async def store(open_store):
    return await open_store()


@pytest.fixture
def python():
    """Start a Python program given as text; it is killed after the test if it is still there."""
    started = []

    def python(program, *arguments, **options):
        options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True} | options
        command = [sys.executable, "-c", program, *map(str, arguments)]
        process = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": "src"}, **options)
        started.append(process)
        return process

    yield python
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()
