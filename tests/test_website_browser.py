"""The built site in a browser: every page at two widths, search, light and dark, and nothing from another site."""

from __future__ import annotations

import fcntl
import functools
import http.server
import subprocess
import threading
from pathlib import Path

import pytest

from support import browser as browsers
from website.pages import ROOT, navigation

pytestmark = pytest.mark.extended
SITE = ROOT / "build" / "site"
PATIENCE = 60_000
"""Milliseconds for a page, on a busy machine."""
LOOK = """() => [
  document.documentElement.scrollWidth - document.documentElement.clientWidth,
  document.querySelectorAll("h1").length,
  [...document.querySelectorAll("article img")].filter((image) => !image.complete || !image.naturalWidth).length,
]"""
FOUND = {
    "heartbeat": "operate/workers/",
    "visibility timeout": ("operate/workers/", "reference/glossary/"),
    "countdown": ("guides/scheduling/", "reference/glossary/"),
    "chord": ("guides/flows/", "reference/glossary/"),
    "exactly once": "explain/exactly-once/",
}
"""The page that a search has to find first, or pages of which one is enough."""


@pytest.fixture(scope="session")
def site(testrun_uid: str) -> Path:
    """The site, built once for all processes of a run."""
    built = SITE / f".{testrun_uid}"
    SITE.parent.mkdir(exist_ok=True)
    with (SITE.parent / "docs.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built.exists():
            done = subprocess.run(["make", "docs"], cwd=ROOT, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
            built.touch()
    return SITE


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def address(site: Path):
    handler = functools.partial(Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module")
def chromium():
    if (why := browsers.why_not()) is not None:
        pytest.skip(why)
    with browsers.browser() as launched:
        yield launched


@pytest.fixture
def make_page(chromium, address):
    """Makes pages; console errors, failed requests, and requests of another site fail the test."""
    contexts, complaints = [], []

    def console(message):
        if message.type in ("error", "warning"):
            complaints.append(message.text)

    def request(sent):
        if not sent.url.startswith((address, "data:", "blob:")):
            complaints.append(f"another site: {sent.url}")

    def response(answer):
        if answer.status >= 400:
            complaints.append(f"{answer.url}: {answer.status}")

    def make(width: int, scheme: str = "light"):
        context = chromium.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce"
        )
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        page = context.new_page()
        page.on("console", console)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", request)
        page.on("requestfailed", lambda failed: complaints.append(f"{failed.url}: {failed.failure}"))
        page.on("response", response)
        return page

    yield make
    for context in contexts:
        context.close()
    assert complaints == []


def paths() -> list[str]:
    """Where each page of the navigation is: `guides/tasks.md` at `guides/tasks/`."""
    listed = [page.removesuffix(".md") for section in navigation().values() for page in section]
    return [page.removesuffix("index") if page.endswith("index") else f"{page}/" for page in listed]


@pytest.mark.parametrize("width", [390, 1280], ids=["phone", "desktop"])
def test_every_page_opens_and_fits(make_page, address, width):
    page = make_page(width)
    wrong = []
    for path in paths():
        page.goto(address + path)
        overflow, headings, broken = page.evaluate(LOOK)
        if overflow > 0 or headings != 1 or broken:
            wrong.append(f"{path}: {overflow} pixels too wide, {headings} h1, {broken} pictures not loaded")
    assert not wrong, "\n".join(wrong)
