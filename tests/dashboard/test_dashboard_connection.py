"""The connection of the page: one stream per browser, timeouts, and a server that does not respond."""

from __future__ import annotations

import re
import threading
from contextlib import contextmanager

import pytest
from playwright.sync_api import expect

from holdfast.http import sse
from support.browser import look
from support.eventually import eventually
from support.scene import a_few

HIDE = """hidden => {
  Object.defineProperty(document, "hidden", {value: hidden, configurable: true});
  document.dispatchEvent(new Event("visibilitychange"));
}"""
pytestmark = pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)


def queued(page):
    return page.locator(".tiles").first.locator("a", has_text="queued").locator("b")


def streams(lab, number):
    lab.do(eventually(lambda: lab.service.streams == number))


@contextmanager
def hung(lab):
    """The server accepts connections and answers nothing."""
    go_on = threading.Event()
    lab._loop.call_soon_threadsafe(go_on.wait)
    try:
        yield
    finally:
        go_on.set()


@pytest.mark.parametrize("tabs", [2, pytest.param(12, marks=pytest.mark.extended)])
def test_many_tabs_share_one_stream(lab, page, tabs):
    lab.enqueue("resize_image", "a.raw", 1)
    pages = [page, *(page.context.new_page() for _ in range(tabs - 1))]
    for one in pages:
        look(one, lab)
    for one in pages:
        expect(one.locator(".connection")).to_have_text("Live")
    streams(lab, 1)
    lab.enqueue("resize_image", "b.raw", 1)
    for one in pages:
        expect(queued(one)).to_have_text("2")
    pages[0].close()  # the first has the stream
    expect(pages[1].locator(".connection")).to_have_text("Live")
    lab.enqueue("resize_image", "c.raw", 1)
    for one in pages[1:]:
        expect(queued(one)).to_have_text("3")
    streams(lab, 1)


def test_a_hidden_tab_has_no_stream(lab, page):
    look(page, lab)
    streams(lab, 1)
    page.evaluate(HIDE, True)
    streams(lab, 0)
    lab.enqueue("resize_image", "a.raw", 1)
    page.evaluate(HIDE, False)
    streams(lab, 1)
    expect(queued(page)).to_have_text("1")


def test_the_page_polls_if_the_stream_gets_no_response(lab, page):
    page.route("**/v1/events", lambda _: None)
    page.clock.install()
    lab.enqueue("resize_image", "a.raw", 1)
    look(page, lab)
    page.clock.run_for(10_000)
    expect(page.locator(".connection")).to_have_text("Polling")
    expect(page.get_by_role("alert")).to_have_count(0)
    lab.enqueue("resize_image", "b.raw", 1)
    page.clock.run_for(10_000)
    expect(queued(page)).to_have_text("2")


def test_a_request_without_a_response_ends(lab, page):
    page.clock.install()
    look(page, lab)
    held = []
    page.route(re.compile("v1/stats"), lambda route: held.append(route))  # noqa: PLW0108  # Playwright sets attributes on it
    with page.expect_request(re.compile("v1/stats")):
        page.clock.run_for(6_000)
    page.unroute_all()
    lab.enqueue("resize_image", "a.raw", 1)
    page.clock.run_for(16_000)
    expect(queued(page)).to_have_text("1")


def test_a_hung_server_is_reported_within_five_seconds(lab, page):
    page.clock.install()
    look(page, lab)
    expect(page.locator(".connection")).to_have_text("Live")
    with hung(lab):
        page.clock.pause_at(page.evaluate("Date.now() + 100"))
        page.clock.run_for(5_000)
        alert = page.evaluate("document.querySelector('[role=alert]')?.textContent")
        assert alert is not None
        assert "the server does not respond" in alert
    page.clock.resume()
    expect(page.get_by_role("alert")).to_have_count(0)


HEARD = """async (since) => (await import("/dashboard/api.js")).lastHeard() >= since"""


@pytest.mark.parametrize(
    "where",
    [
        "#/",
        *(
            pytest.param(other, marks=pytest.mark.extended)
            for other in ("#/jobs", "#/queues", "#/queues/exports", "#/workers", "#/dead", "#/flows")
        ),
    ],
)
def test_an_idle_tab_makes_fewer_than_thirty_requests_a_minute(lab, page, where, monkeypatch):
    monkeypatch.setattr(sse, "COMMENT_EVERY", 0.05)  # by the clock of the page, a server with 2 would be silent
    lab.do(a_few(lab.app))
    page.clock.install()
    look(page, lab, where)
    expect(page.locator(".connection")).to_have_text("Live")
    sent = []
    page.on("request", lambda one: sent.append(one.url) if "/v1/" in one.url else None)
    stay(page, 60)
    assert 0 < len(sent) < 30, sent


@pytest.mark.parametrize(("where", "costly"), [("#/", "v1/latency"), ("#/queues", "v1/rates"), ("#/dead", "v1/errors")])
def test_an_idle_tab_reads_ended_claims_again_only_if_some_have_ended(lab, page, where, costly, monkeypatch):
    monkeypatch.setattr(sse, "COMMENT_EVERY", 0.05)
    lab.do(a_few(lab.app))
    page.clock.install()
    look(page, lab, where)
    expect(page.locator(".connection")).to_have_text("Live")
    stay(page, 10)  # the stream has begun
    sent = []
    page.on("request", lambda one: sent.append(one.url))

    def asked(path):
        return sum(path in url for url in sent)

    stay(page, 80)
    assert (asked("v1/stats") > 0, asked(costly)) == (True, 0), sent
    lab.enqueue("resize_image", "b.raw", 1)
    with page.expect_request(re.compile(costly)):
        stay(page, 10)


def stay(page, seconds):
    """Step the clock of the page, with answers of the server in between."""
    for _ in range(seconds // 2):
        page.clock.run_for(2000)
        now = page.evaluate("performance.now()")
        while not page.evaluate(HEARD, now):  # else the page takes the stream for silent, and connects again
            pass
        page.evaluate("fetch('health').then((answer) => answer.text())")  # the requests before it have been answered
