"""`holdfast top`: its tables and keys."""

import re

import pytest
from textual.widgets import DataTable, Static

from holdfast import Context, Holdfast
from holdfast.app import parts_of
from holdfast.cli.live import Top
from support.workers import working


def cells(top, id):
    table = top.query_one(f"#{id}", DataTable)
    return [table.get_row(row) for row in table.rows]


@pytest.fixture
async def app(tmp_path):
    app = Holdfast(f"sqlite:///{tmp_path}/jobs.db", max_attempts=1, lease=1)

    @app.task
    async def slow(ctx: Context) -> None:
        import asyncio

        ctx.progress(3, 4, "nearly")
        await asyncio.sleep(60)

    @app.task
    async def bad() -> None:
        raise ValueError("\x1b[31mno")

    yield app
    await app.close()


async def test_top_shows_the_store_and_its_keys_work(app):
    slow = await app.enqueue("slow")
    bad = await app.enqueue("bad")
    await app.submit("any", b"", queue="media")
    async with working(app):
        await bad.wait(10)
        top = Top(Holdfast(parts_of(app).url))
        async with top.run_test(size=(160, 40)) as pilot:
            await pilot.pause()
            await top.refresh_all()
            assert "1 dead" in str(top.query_one("#head", Static).content)
            [default, media] = cells(top, "queues")
            assert default[:8] == ["default", "0", "1", "0", "0", "0", "1", "0"]
            assert (default[8], default[12]) == ("0.0667", "1")  # one job in 15 minutes; one worker
            assert (media[1], media[13]) == ("1", "no worker")
            head, part = str(top.query_one("#reasons", Static).content).splitlines()
            assert head == "1 job waits:"
            assert part.startswith(
                "  1 in queue 'media', which no live worker serves: start a worker for it: `holdfast"
            )
            assert len(cells(top, "workers")) == 1
            [running] = cells(top, "running")
            assert running[0] == slow.id
            assert "75% nearly" in running[4]
            assert re.fullmatch(r"\d\d:\d\d:\d\d", running[5])
            [failure] = cells(top, "failures")
            assert (failure[2], failure[4]) == ("dead", "ValueError: \\x1b[31mno")
            await pilot.press("p")
            assert (await app.stats()).queues[0].paused
            await pilot.press("p")
            assert not (await app.stats()).queues[0].paused
            await pilot.press("r")
            assert "queued again" in str(top.query_one("#message", Static).content)
            await pilot.press("c")
            assert (await app.job(slow.id)).cancel_requested or (await app.job(slow.id)).state == "cancelled"
        await slow.wait(10)


async def test_a_sample_that_arrives_after_top_was_closed_is_dropped(app):
    top = Top(Holdfast(parts_of(app).url))
    async with top.run_test() as pilot:
        await pilot.pause()
        await top.query("#head").remove()
        await top.refresh_all()
    assert top.return_code != 1


def test_without_textual_the_extra_is_named(terminal):
    (terminal.folder / "textual.py").write_text("raise ModuleNotFoundError('none', name='textual')\n")
    terminal.env["PYTHONPATH"] = str(terminal.folder)
    assert "holdfast[tui]" in terminal("top", code=2)


def test_top_without_a_terminal_ends_with_what_to_use(terminal):
    terminal("enqueue", "--", "true")
    assert "needs a terminal" in terminal("top", code=2)
