"""The pictures of README.md and docs/: `python tests/dashboard/screenshots.py` writes docs/images."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import sys
import tempfile
import threading
from pathlib import Path

from holdfast.app import parts_of

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))
socket.gethostname = lambda: "worker-1"  # no real host name in the screenshots

from holdfast import Flow, Worker  # noqa: E402
from holdfast.worker.run.shell import allow_shell  # noqa: E402
from support import scene  # noqa: E402
from support.browser import Server, browser, why_not  # noqa: E402

IMAGES = ROOT / "docs" / "images"
WIDE, PHONE = {"width": 1280, "height": 640}, {"width": 390, "height": 844}
MAX_HEIGHT = 2000
"""Maximum height in pixels."""
PAGES = {
    "overview": ("#/", ("light", "phone")),
    "jobs": ("#/jobs?state=running&state=failed", ("dark",)),
    "failed-job": ("#/jobs/{charge}", ("light",)),
    "flow": ("#/flows/launch", ("light",)),
    "queues": ("#/queues", ("light",)),
    "workers": ("#/workers", ("dark",)),
    "errors": ("#/errors", ("dark",)),
    "schedules": ("#/schedules", ("light",)),
    "output": ("#/jobs/{shell}", ("dark",)),
}
"""Name of a picture: the page that it shows, and its color schemes. Each is used in README.md or docs/."""


class Show:
    """A store with jobs in every state, and workers that run some of them."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "jobs.db"
        self.url = f"sqlite:///{self.path}"
        self.ready = threading.Event()
        self.over = threading.Event()
        self.film = self.charge = self.shell = ""
        self.problem: BaseException | None = None

    def run(self) -> None:
        try:
            asyncio.run(self._run())
        except BaseException as error:
            self.problem = error
            self.ready.set()
            raise

    async def _run(self) -> None:
        app = scene.make_app(self.url)
        scene.rename_source(app, "shop/billing.py")
        allow_shell(parts_of(app))
        async with app:
            await scene.remember(app, str(self.path))
            await scene.fill(app)
            while (await app.stats()).counts["dead"] < 13:
                await Worker(app, until_idle=True).run()
            self.charge = (await app.jobs(state="dead", task="charge_card", limit=1)).jobs[0].id
            await scene.leave_waiting(app)
            await scene.by_the_clock(app)
            command = 'for n in 1 2 3 4 5 6; do echo "table $n of 6: 40,000 rows copied"; sleep 0.05; done; sleep 90'
            self.shell = (await app.enqueue("shell", command=command)).id
            self.film = (await parts_of(app).registry.tasks["encode_film"].enqueue("holiday.mov", 40)).id
            await parts_of(app).registry.tasks["encode_film"].enqueue("garden.mov", 60)
            await app.enqueue_flow(launch(app), id="launch")
            workers = [
                Worker(app, ["default", "mail", "media"], 10, grace=0.1),
                Worker(app, ["payments", "reports", "stock", "default"], 4, grace=0.1),
            ]
            running = [asyncio.create_task(worker.run()) for worker in workers]
            while True:
                film = await app.job(self.film)
                if film.progress is not None:
                    break
                await asyncio.sleep(0.1)
            number = 0
            task = parts_of(app).registry.tasks
            while not self.over.is_set():
                number += 1
                if number % 3 == 0:
                    await task["send_invoice"].enqueue(2000 + number, "2026-11")
                else:
                    await task["resize_image"].enqueue(f"uploads/{number:04}.raw", 1280)
                if number == 4:
                    await task["sync_stock"].enqueue("vienna", 41)
                if number == 7:
                    await task["encode_film"].enqueue("winter.mov", 12)
                if number == 14:
                    self.ready.set()
                await asyncio.sleep(0.5)
            for worker in workers:
                worker.stop()
            await asyncio.gather(*running)


def launch(app) -> Flow:
    """A flow of which one job runs, one is dead and one waits."""
    task = parts_of(app).registry.tasks
    made = Flow("product launch")
    images = [made.add(task["resize_image"], f"launch/{n}.raw", 1280) for n in range(3)]
    film = made.add(task["encode_film"], "launch.mov", 40).after(images[0])
    invoice = made.add(task["send_invoice"], 3000, "2026-11").after(*images[1:])
    made.add(task["charge_card"], 7001, "12.90").after(invoice)
    made.add(task["export_orders"], "2026-12-01").after(film, invoice)
    return made


def take(page, address: str, name: str, where: str, path: Path) -> None:
    """One screenshot of the whole page after it has loaded."""
    size = dict(page.viewport_size)
    page.goto(f"{address}/{where}")
    page.wait_for_selector(".page h1")
    page.locator(".loading").wait_for(state="detached")
    if name == "overview":
        page.wait_for_selector(".charts svg")
    page.wait_for_timeout(700)
    height = page.evaluate("document.querySelector('.page').getBoundingClientRect().bottom + scrollY + 24")
    page.set_viewport_size({**size, "height": max(size["height"], min(MAX_HEIGHT, int(height)))})
    page.wait_for_timeout(200)
    page.screenshot(path=path)
    page.set_viewport_size(size)


def main(wanted: list[str]) -> None:
    if (why := why_not()) is not None:
        raise SystemExit(why)
    IMAGES.mkdir(exist_ok=True)
    logging.getLogger("holdfast").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        show = Show(Path(folder))
        thread = threading.Thread(target=show.run)
        thread.start()
        show.ready.wait()
        try:
            if show.problem is None:
                with Server(show.url) as server, browser() as chromium:
                    for look in ("light", "dark", "phone"):
                        pages = {
                            name: where.format(charge=show.charge, shell=show.shell)
                            for name, (where, looks) in PAGES.items()
                            if look in looks
                        }
                        picture(chromium, server.address, pages, look, wanted)
        finally:
            show.over.set()
            thread.join()


def picture(chromium, address: str, pages: dict[str, str], look: str, wanted: list[str]) -> None:
    """The pictures of these pages in one look."""
    phone = look == "phone"
    context = chromium.new_context(
        viewport=PHONE if phone else WIDE,
        color_scheme="dark" if look == "dark" else "light",
        reduced_motion="reduce",
        locale="en-GB",
        timezone_id="UTC",
    )
    with contextlib.closing(context):
        page = context.new_page()
        page.on(
            "console", lambda message: print("console:", message.text) if message.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda error: print("error:", error))
        for name, where in pages.items():
            if not wanted or name in wanted:
                take(page, address, name, where, IMAGES / f"dashboard-{name}-{look}.png")


if __name__ == "__main__":
    main(sys.argv[1:])
