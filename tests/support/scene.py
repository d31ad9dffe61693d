"""Jobs to look at: an app with tasks that succeed, fail, take long, and die; and a past for the charts."""

from __future__ import annotations

import asyncio
import json
import math
import random
import time

import msgspec

from holdfast import Backoff, Context, Holdfast, Worker
from holdfast.app import parts_of
from holdfast.store import minute_sums

NEVER_SOON = Backoff(base=900, factor=1, jitter=300)


def make_app(url: str) -> Holdfast:
    """The app whose jobs are looked at."""
    app = Holdfast(url)

    @app.task(queue="mail", tags=["customer"])
    async def send_invoice(customer: int, month: str) -> dict[str, object]:
        await asyncio.sleep(0.01)
        return {"sent": True, "message": f"<{customer}.{month}@mail>"}

    @app.task
    async def resize_image(path: str, width: int) -> str:
        await asyncio.sleep(0.005)
        return path.replace(".raw", f"-{width}.jpg")

    @app.task(queue="media")
    async def encode_film(ctx: Context, film: str, parts: int) -> str:
        start = ctx.last_checkpoint or 0
        for part in range(start, parts):
            await asyncio.sleep(2)
            await ctx.checkpoint(part + 1)
            ctx.progress(part + 1, parts, f"part {part + 1} of {parts}")
        return f"{film}: {parts} parts"

    @app.task(queue="stock", max_attempts=6, retry=NEVER_SOON)
    async def sync_stock(warehouse: str, since: int) -> None:
        raise ConnectionError(f"{warehouse}.stock.internal did not answer within {since % 7 + 2}.0 s")

    @app.task(queue="payments", max_attempts=3, retry=Backoff(base=0.01, factor=1, jitter=0), tags=["money"])
    async def charge_card(order: int, amount: str) -> None:
        _check(order)

    @app.task(queue="reports", max_attempts=1)
    async def monthly_report(month: str) -> None:
        raise KeyError(month)

    @app.task(queue="exports")
    async def export_orders(day: str) -> None: ...

    return app


def rename_source(app: Holdfast, name: str) -> None:
    """Have tracebacks name another file than this one, wherever it lies."""
    import linecache
    from pathlib import Path

    lines = Path(__file__).read_text().splitlines(keepends=True)
    linecache.cache[name] = (len(lines), None, lines, name)
    for function in (_check, *(task.fn for task in parts_of(app).registry.tasks.values())):
        if function.__code__.co_filename == __file__:
            function.__code__ = function.__code__.replace(co_filename=name)


def _check(order: int) -> None:
    if order % 3:
        raise ValueError(f"order {order} has no billing address")
    raise PermissionError(f"card of order {order} was declined: code {order % 5 + 10}")


async def fill(app: Holdfast, scale: int = 1) -> None:
    """Jobs in every state but running; a worker that runs beside it gets those too."""
    task = parts_of(app).registry.tasks
    call = app.call
    made = [call(task["send_invoice"], 1000 + n, "2026-10") for n in range(60 * scale)]
    made += [call(task["resize_image"], f"uploads/{n:04}.raw", 640) for n in range(120 * scale)]
    made += [call(task["charge_card"], 7000 + n, f"{n}.90") for n in range(11 * scale)]
    made += [call(task["sync_stock"], name, n) for n, name in enumerate(["berlin", "lisbon", "oslo", "turin"])]
    made += [call(task["monthly_report"], month) for month in ("2026-09", "2026-10")]
    random.Random(3).shuffle(made)
    await app.enqueue_many(made)


async def a_few(app: Holdfast) -> None:
    """3 succeeded, 3 dead of two causes, 2 queued that nobody serves, 1 failed, 1 scheduled."""
    task, call = parts_of(app).registry.tasks, app.call
    made = [call(task["resize_image"], f"uploads/{n:04}.raw", 640) for n in range(3)]
    made += [call(task["charge_card"], 7000 + n, "9.90") for n in range(3)]
    made.append(call(task["sync_stock"], "oslo", 3))
    await app.enqueue_many(made)
    while (await app.stats()).counts["dead"] < 3:  # a retry is due a moment after the worker is idle
        await Worker(app, ["default", "payments", "stock"], until_idle=True).run()
    await app.enqueue_many([call(task["export_orders"], f"2026-11-0{day}") for day in (1, 2)])
    await task["send_invoice"].using(delay=3600).enqueue(1, "2026-12")


async def leave_waiting(app: Holdfast) -> None:
    """What nobody works on, and what is to come."""
    task = parts_of(app).registry.tasks
    await app.enqueue_many([app.call(task["export_orders"], f"2026-11-{day:02}") for day in range(1, 13)])
    await task["send_invoice"].using(delay=3600, key="invoice-2048-2026-11").enqueue(2048, "2026-11")
    await task["send_invoice"].using(delay=7200).enqueue(2049, "2026-11")
    gone = await task["resize_image"].using(delay=600).enqueue("uploads/old.raw", 320)
    await app.cancel(gone.id)


async def by_the_clock(app: Holdfast) -> None:
    """Schedules of every kind: by the day and by the minute, one that has run, one in code, one that is paused."""
    task, call, put = parts_of(app).registry.tasks, app.call, app.schedules.put
    await put("nightly-export", call(task["export_orders"], "yesterday"), cron="0 3 * * *", tz="Europe/Oslo")
    await put("month-end", call(task["monthly_report"], "last"), cron="30 6 1 * *")
    await put("stock-oslo", call(task["sync_stock"], "oslo", 3), every=900, overlap="skip")
    await put("thumbnails", call(task["resize_image"], "uploads/new.raw", 320), cron="*/5 * * * MON-FRI", jitter=20)
    await app.schedules.pause("stock-oslo")
    soon = await put("invoice-reminders", call(task["send_invoice"], 1, "2026-11"), every=0.05)
    while soon.last_run is None:
        await app.schedules.make_due_runs()
        soon = await app.schedules.get("invoice-reminders")
    await put("invoice-reminders", call(task["send_invoice"], 1, "2026-11"), every=3600)
    in_code = await app.schedules.get("thumbnails")
    await app.schedules.keep(msgspec.structs.replace(in_code, in_code=True))


def past(now: float, hours: int = 24 * 7) -> tuple[list[tuple], dict[str, bytes]]:
    """Minutes as a store keeps them, and depths as a server notes them: a week with days, nights and one bad hour."""
    seeded = random.Random(11)
    minutes, depths = [], {}
    end = int(now // 60) * 60
    for ago in range(hours * 60, 0, -1):
        at = end - ago * 60
        day = 0.55 + 0.45 * math.sin((at % 86400) / 86400 * math.tau - 1.9)
        busy = 40 + 160 * day + seeded.gauss(0, 9)
        bad = 6 if 70 > ago > 42 or 2000 > ago > 1880 else 0.6
        counts = {"succeeded": max(0, round(busy)), "failed": max(0, round(seeded.gauss(bad * 2, 1)))}
        counts["dead"] = 1 if ago > 1500 and seeded.random() < bad / 12 else 0
        wait = 0.08 + 0.5 * day + (1.9 if bad > 1 else 0) * seeded.random()
        for outcome, count in counts.items():
            if count:
                sums, sampled = minute_sums.Sums(), min(count, 8)
                for _ in range(sampled):
                    sums.add(*(int(1e6 * mean * seeded.lognormvariate(-0.2, 0.7)) for mean in (wait, 0.25)))
                place = (at * 10**6, "default", "charge_card" if outcome != "succeeded" else "send_invoice", outcome)
                many = count // sampled
                counts_of = (msgspec.msgpack.encode([many * n for n in found]) for found in (sums.waits, sums.runs))
                minutes.append((*place, count, many * sums.waited, many * sums.ran, *counts_of))
        queued = max(0, round(22 * day + (70 if bad > 1 else 0) * seeded.random() + seeded.gauss(0, 3)))
        hour = depths.setdefault(str(at // 3600 * 3600), {})
        hour[str(at % 3600 // 60)] = {"default": queued, "mail": queued // 3, "exports": 12 if ago < 30 else 0}
    return minutes, {name: json.dumps(noted).encode() for name, noted in depths.items()}


async def remember(app: Holdfast, path: str) -> None:
    """Give a SQLite store a past."""
    import sqlite3

    minutes, depths = past(time.time())
    for name, value in depths.items():
        await parts_of(app).records.put("depth", name, value)
    with sqlite3.connect(path) as connection:
        connection.executemany("INSERT OR REPLACE INTO holdfast_minute VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", minutes)
    connection.close()
