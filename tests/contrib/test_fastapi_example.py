"""The shop of `examples/fastapi` as a real server: a long export through a kill -9 of the process that runs it."""

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import httpx
import pytest

from support.eventually import eventually
from support.ports import free_port

EXAMPLE = Path(__file__).parents[2] / "examples" / "fastapi"
ORDERS = 1000


class Shop:
    """A server in a folder, on a port; it can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        shutil.copy(EXAMPLE / "shop.py", folder)
        self.folder = folder
        self.port = free_port()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[httpx.AsyncClient]:
        """Start the server, until the end of the block or its own."""
        self._start()
        try:
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{self.port}", timeout=60) as client:
                await eventually(lambda: self._answers(client))
                yield client
        finally:
            self.kill()

    def _start(self) -> None:
        words = [sys.executable, "-m", "uvicorn", "shop:web", "--port", str(self.port)]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                words, cwd=self.folder, env=environment | {"SHOP_PAGE": "1"}, stdout=log, stderr=log
            )

    async def _answers(self, client: httpx.AsyncClient) -> bool:
        try:
            return (await client.get("/jobs/unknown")).status_code == 404
        except httpx.TransportError:
            assert self.process.poll() is None, (self.folder / "log").read_text()
            return False

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.mark.extended
async def test_an_export_goes_on_in_the_next_process(tmp_path):
    shop = Shop(tmp_path)
    async with shop.serving() as client:
        with closing(sqlite3.connect(tmp_path / "shop.db", timeout=60)) as database, database:
            database.executemany("INSERT INTO orders (item) VALUES (?)", [(f"lamp {n}",) for n in range(ORDERS)])
        job = (await client.post("/exports")).json()["job"]

        async def begun() -> int:
            return ((await client.get(f"/jobs/{job}")).json()["progress"] or {"done": 0})["done"]

        assert 0 < await eventually(begun) < ORDERS
        shop.kill()
    with (tmp_path / "exports" / f"{job}.csv").open("r+b") as file:
        file.write(b"1,LAMP 0\n")  # stays, unless the export begins again
    async with shop.serving() as client:

        async def ended() -> bool:
            return (await client.get(f"/jobs/{job}")).json()["state"] == "succeeded"

        await eventually(ended)
        assert (await client.get(f"/jobs/{job}")).json()["result"] == ORDERS
        exported = (await client.get(f"/exports/{job}")).text.splitlines()
    assert exported == ["1,LAMP 0", *(f"{n + 1},lamp {n}" for n in range(1, ORDERS))]
