"""Whatever goes wrong around a job's code, its claim ends and its slot is free again."""

from __future__ import annotations

import asyncio
import json
import sqlite3

import pytest

from holdfast import ConfigError, Context, Holdfast, InvalidJob, State, Worker


async def test_progress_that_cannot_be_stored_is_refused_where_it_is_said(make_app):
    app = make_app(max_attempts=1)
    starts = []

    @app.task
    async def scan(ctx: Context) -> None:
        starts.append(1)
        ctx.progress(1, note="fine")
        ctx.progress(2, note="broken \udcff name")

    handle = await scan.enqueue()
    await Worker(app, until_idle=True).run()
    job = await handle.job()
    assert job.state == State.DEAD
    assert "progress" in job.error
    assert len(starts) == 1


async def test_a_codec_that_makes_no_bytes_is_refused_at_the_door(make_app):
    app = make_app()

    @app.task(codec=json)
    def work(x: int) -> None: ...

    with pytest.raises(InvalidJob, match="must return bytes"):
        await work.enqueue(1)
    assert not (await app.jobs()).jobs


async def test_a_result_that_its_codec_makes_no_bytes_of_ends_that_job_alone(make_app):
    class HalfCodec:
        def dumps(self, value):
            return b"call" if isinstance(value, tuple) else 17

        def loads(self, data):
            return ((), {})

    app = make_app()

    @app.task(codec=HalfCodec())
    async def work() -> int:
        return 1

    bad, good = await work.enqueue(), await app.enqueue("noop")
    await asyncio.wait_for(Worker(app, until_idle=True).run(), 90)
    assert (await bad.job()).state == State.DEAD
    assert (await good.job()).state == State.SUCCEEDED


async def test_a_plain_function_is_not_taken_for_the_loop(make_app):
    app = make_app()
    with pytest.raises(ConfigError, match="plain function"):
        app.task(run_in="loop")(lambda_free)


def lambda_free() -> None: ...


async def test_a_pickled_plain_function_keeps_its_slot_until_it_has_really_ended(app_url, tmp_path):
    app = Holdfast(app_url, cloudpickle=True, secret="s" * 32, retry_base=0, retry_jitter=0, concurrency=1)
    log = str(tmp_path / "log")

    def slow() -> None:
        import time

        for word in ("start ", "end "):
            with open(log, "a") as file:
                file.write(word)
            time.sleep(0.2)

    async with app:
        # Times out long before it ends; the next attempt must wait for the thread that cannot be stopped.
        handle = await app.call(slow).task.using(timeout=0.05, max_attempts=2).enqueue()
        assert (await handle.job()).task == "holdfast.call"
        await asyncio.wait_for(Worker(app, until_idle=True).run(), 90)
        assert (await handle.job()).state == State.DEAD
    assert (tmp_path / "log").read_text().split() == ["start", "end", "start", "end"]


async def test_one_row_of_broken_text_harms_nobody_else(tmp_path):
    app = Holdfast(f"sqlite:///{tmp_path}/jobs.db?synchronous=normal", poll=0.05)
    async with app:
        broken, *others = [await app.enqueue("noop") for _ in range(3)]
        database = sqlite3.connect(tmp_path / "jobs.db")
        database.execute("UPDATE holdfast_job SET error = CAST(x'ff' AS TEXT) WHERE id = ?", (broken.id,))
        database.commit()
        database.close()
        working = asyncio.create_task(Worker(app).run())
        for handle in others:
            await handle.result(timeout=10)
        assert len((await app.jobs()).jobs) == 3
        working.cancel()
        await asyncio.wait([working])
