"""Messages to the store API with valid tokens of each role stop neither the server nor a worker."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("aiohttp")
pytest.importorskip("uvicorn")

from lab import fuzz

MESSAGES = 4 * int(os.environ.get("HOLDFAST_EXAMPLES", "100"))


@pytest.mark.parametrize("seed", [1, 2])
async def test_no_message_stops_the_server_or_a_worker_or_touches_the_jobs_of_others(seed):
    found = await fuzz.run(MESSAGES, seed)
    assert found.messages == MESSAGES
    assert found.wrong == []
    assert {200, 403, 422} <= found.statuses.keys(), "some are taken, and some are refused"
