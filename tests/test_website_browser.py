"""The built site in a browser: every page at two widths, search, light and dark, and nothing from another site."""

from __future__ import annotations

import fcntl
import functools
import http.server
import re
import subprocess
import threading
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from support import browser as browsers
from website.pages import NAVIGATION, ROOT, navigation

pytestmark = pytest.mark.extended
SITE = ROOT / "build" / "site"
PHONE, DESKTOP = 390, 1280
PATIENCE = 60_000
"""Milliseconds for a page, on a busy machine."""
LOOK = """() => [
  document.documentElement.scrollWidth - document.body.clientWidth,
  document.querySelectorAll("h1").length,
  [...document.querySelectorAll("article img")].filter((image) => !image.complete || !image.naturalWidth).length,
]"""
RAW = """() => {
  const article = document.querySelector("article").cloneNode(true);
  article.querySelectorAll("pre, code").forEach((code) => code.remove());
  return article.textContent.match(/\\]\\([^)]*\\)/)?.[0] ?? null;
}"""
"""A link in Markdown that the page shows as text; nothing if there is none."""
FOUND = {
    "heartbeat": "operate/workers/",
    "visibility timeout": "operate/workers/",
    "countdown": "(guides/scheduling|reference/glossary)/",  # both rank alike, and the glossary links to the guide
    "eta": "guides/scheduling/",
    "dead letter": "operate/dead-letters/",
    "rate limit": "guides/limits/",
    "concurrency": "guides/limits/",
    "chord": "guides/flows/",
    "exactly once": "explain/exactly-once/",
    "idempotency": "guides/options/",
    "unique": "guides/unique-jobs/",
    "prefetch": "operate/workers/",
    "enqueue_many": "guides/tasks/",
}
"""The page that a search finds first: the page about it, or the glossary, which links to it."""
BACKGROUND = """() => {
  const [red, green, blue] = getComputedStyle(document.body).backgroundColor.match(/[\\d.]+/g).map(Number);
  return (red + green + blue) / 3;
}"""


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


class Files(http.server.SimpleHTTPRequestHandler):
    def end_headers(self):
        self.send_header("Cache-Control", "max-age=3600")  # scripts and styles are asked for once
        super().end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def address(site: Path):
    handler = functools.partial(Files, directory=str(site))
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

    def failure(failed):
        if failed.failure != "net::ERR_ABORTED":  # the icon, when the next page is opened
            complaints.append(f"{failed.url}: {failed.failure}")

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
        page.on("requestfailed", failure)
        page.on("response", response)
        return page

    yield make
    for context in contexts:
        context.close()
    assert complaints == []


def path_of(page: str) -> str:
    """Where a page of the navigation is: `guides/tasks.md` at `guides/tasks/`."""
    return page.removesuffix("index.md") if page.endswith("index.md") else page.removesuffix(".md") + "/"


@pytest.mark.parametrize("section", navigation())
def test_every_page_opens_and_fits_on_a_phone_and_a_desktop(make_page, address, section):
    page = make_page(PHONE)
    wrong = []
    for path in map(path_of, navigation()[section]):
        page.set_viewport_size({"width": PHONE, "height": 900})
        page.goto(address + path)
        for width in (PHONE, DESKTOP):
            page.set_viewport_size({"width": width, "height": 900})
            overflow, headings, broken = page.evaluate(LOOK)
            if overflow > 0 or headings != 1 or broken:
                wrong.append(f"{path}, {width}: {overflow} pixels too wide, {headings} h1, {broken} pictures missing")
        if (raw := page.evaluate(RAW)) is not None:
            wrong.append(f"{path} shows Markdown: {raw}")
    assert not wrong, "\n".join(wrong)


def test_the_readme_has_a_screen_and_a_half_before_its_details(make_page, address):
    page = make_page(DESKTOP)
    page.goto(address)
    first, *others = page.locator("article details").all()
    top, bottom = page.locator("article h1").bounding_box()["y"], first.bounding_box()["y"]
    assert bottom - top <= 1.5 * 1080
    for details in (first, *others):
        details.locator("summary").click()
        expect(details.locator("table a, ul a").first).to_be_visible()


@pytest.mark.parametrize("width", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_search_finds_the_right_page_first(make_page, address, width):
    page = make_page(width)
    page.goto(address)
    page.locator("label[for=__search], .md-search__button").filter(visible=True).first.click()
    box = page.get_by_role("combobox", name="Search")
    for words, path in FOUND.items():
        box.fill(words)
        first = page.locator(f"[role=option][href*='?h={words.replace(' ', '+')}']").first
        # The list is filled while the search goes on: its final order counts.
        expect(first).to_have_attribute("href", re.compile(rf"{re.escape(address)}{path}\?"), timeout=PATIENCE)
    box.press("Enter")
    page.get_by_role("heading", name="Enqueue many").wait_for()


def test_the_site_is_dark_where_the_system_is_and_can_be_switched(make_page, address):
    page = make_page(DESKTOP, "dark")
    page.goto(address + "guides/tasks/")
    assert page.evaluate(BACKGROUND) < 60
    page.get_by_title("Switch to light mode").click()
    page.wait_for_function(f"() => ({BACKGROUND})() > 200")
    page.goto(address + "guides/flows/")
    assert page.evaluate(BACKGROUND) > 200, "the choice holds on the next page"


def test_each_page_is_there_as_markdown_too(site):
    for page in (page for section in navigation().values() for page in section):
        folder = site / path_of(page)
        html = (folder / "index.html").read_text(encoding="utf-8")
        (link,) = re.findall(r'<link rel="alternate" type="text/markdown" href="([^"]+)">', html)
        assert (folder / link).resolve() == site / page
        assert (site / page).read_text(encoding="utf-8").startswith("# ")
    assert "](guides/tasks.md): " in (site / "llms.txt").read_text(encoding="utf-8")


def test_the_page_for_what_is_not_there_and_the_sitemap_have_the_published_address(site):
    """GitHub shows 404.html at any depth, so its links begin at the address of the site."""
    address = tomllib.loads(NAVIGATION.read_text(encoding="utf-8"))["project"]["site_url"]
    path = urlsplit(address).path
    links = re.findall(r'(?:href|src)="(/[^"]*)"', (site / "404.html").read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not link.startswith(path)] == []
    sitemap = (site / "sitemap.xml").read_text(encoding="utf-8")
    pages = [page for section in navigation().values() for page in section]
    assert [page for page in pages if f"<loc>{address}{path_of(page)}</loc>" not in sitemap] == []
