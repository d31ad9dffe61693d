"""The lab's own tools: the line that loses answers, and the figures that add up."""

from __future__ import annotations

import asyncio
import json

import pytest
from lab.real.places import place_of
from lab.real.proxy import Proxy
from lab.sim import command as sim

from lab import report


class Echo:
    """A server that answers each line, and remembers it."""

    def __init__(self) -> None:
        self.received: list[bytes] = []

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self._server.close()

    async def _serve(self, reader, writer):
        while line := await reader.readline():
            self.received.append(line)
            writer.write(line)
            await writer.drain()
        writer.close()


@pytest.fixture
async def echo():
    async with Echo() as echo:
        yield echo


@pytest.fixture
async def proxy(echo):
    proxy = Proxy(echo.port, seed=1)
    yield proxy
    await asyncio.to_thread(proxy.close)


async def test_a_line_passes_everything_on_until_there_is_trouble(echo, proxy):
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(b"one\n")
    assert await reader.readline() == b"one\n"
    writer.close()
    assert echo.received == [b"one\n"]
    assert not proxy.counts


async def test_an_answer_is_lost_after_the_request_has_arrived(echo, proxy):
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(b"one\n")
    assert await reader.readline() == b"one\n"
    (connection,) = proxy._connections
    connection.lose_answer = True
    writer.write(b"two\n")
    with pytest.raises((ConnectionResetError, EOFError)):
        await reader.readexactly(4)
    assert echo.received == [b"one\n", b"two\n"]
    assert proxy.counts == {"answers dropped": 1}
    writer.close()


def test_a_store_of_ones_own_has_a_fresh_place_for_every_round(tmp_path):
    place = place_of("postgresql://me@host/jobs?schema=lab{round}")
    first, again, second = (place.url(tmp_path, number) for number in (1, 1, 2))
    assert first == again != second
    assert "{round}" not in first
    with pytest.raises(SystemExit, match=r"say \{round\}"):
        place_of("postgresql://me@host/jobs")


def test_the_figures_of_several_runs_add_up(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(sim, "RESULTS", tmp_path / "results")
    assert sim.run("server", 3, None, None, 1) == 0
    assert sim.run("server", 2, None, None, 1) == 0
    kept = json.loads((sim.RESULTS / "simulation-server.json").read_text())
    assert (kept["schedules"], kept["next_seed"], kept["failed"]) == (5, 5, [])
    _, _, whole = sim.many(0, 5)
    assert kept["counts"] == {name: count for name, count in sorted(whole.items()) if count}


def test_a_report_puts_the_figures_between_the_marks_and_leaves_the_rest(monkeypatch, tmp_path):
    (tmp_path / "sqlite.json").write_text(
        json.dumps({"rounds": 2, "seconds": 90.0, "broken": [], "counts": {"acknowledged jobs": 1234567}})
    )
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- stores -->\nold\n<!-- end -->\nafter\n")
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    monkeypatch.setattr(report, "PAGES", (page,))
    report.run()
    text = page.read_text()
    assert text.startswith("before\n<!-- stores -->\n")
    assert text.endswith("<!-- end -->\nafter\n")
    assert "| acknowledged jobs | 1,234,567 | 1,000,000 (100,000 on a bucket) |" in text
    assert "old" not in text
