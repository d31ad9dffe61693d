"""The served files: small, same for every client, same origin, and with a strict content security policy."""

from __future__ import annotations

import gzip
import re
import urllib.error
import urllib.request

import pytest
from playwright.sync_api import expect

from holdfast.dashboard.files import FOLDER, files
from support.browser import Server

MARKUP = r"innerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|\sstyle=\"|\son\w+=\""
"""APIs that parse text as HTML or code."""
MAX_BYTES = 130_000
"""Maximum bytes of all files, as a browser gets them: compressed."""


def fetch(address, **headers):
    request = urllib.request.Request(address, headers={name.replace("_", "-"): text for name, text in headers.items()})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read()


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_files_are_open_tagged_compressed_and_guarded(lab):
    for name, file in files().items():
        path = "/" if name == "index.html" else f"/dashboard/{name}"
        status, headers, body = fetch(lab.address + path)
        assert (status, body) == (200, file.body)
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        packed = fetch(lab.address + path, Accept_Encoding="gzip, br")
        assert gzip.decompress(packed[2]) == file.body
        assert fetch(lab.address + path, If_None_Match=headers["etag"])[0] == 304
        assert fetch(lab.address + path, Accept_Encoding="gzip", If_None_Match=f'"x", W/{headers["etag"]}')[0] == 304
    assert fetch(f"{lab.address}/dashboard/none.js")[0] == 404
    assert fetch(f"{lab.address}/dashboard/..%2Ffiles.py")[0] == 404


def test_all_files_are_small_and_without_foreign_code():
    assert sum(len(file.packed) for file in files().values()) < MAX_BYTES
    for path in FOLDER.iterdir():
        text = path.read_text()
        assert not re.search(r"https?://(?!www\.w3\.org/)", text), path.name
        assert not re.search(r"\beval\(|new Function|document\.write|insertAdjacentHTML|\sstyle=\"|\son\w+=\"", text), (
            path.name
        )


def test_every_module_is_loaded_at_once():
    modules, left = {"main.js"}, ["main.js"]
    while left:
        found = set(re.findall(r'from "\./([\w.]+)"', (FOLDER / left.pop()).read_text())) - modules
        modules |= found
        left += found
    page = (FOLDER / "index.html").read_text()
    assert set(re.findall(r'rel="modulepreload" href="dashboard/([\w.]+)"', page)) == modules


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_the_page_only_requests_its_origin_and_keeps_the_token_out_of_urls(make_lab, page):
    lab = make_lab(token="a-long-enough-token")
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(lab.address)
    page.get_by_label("Token").fill("a-long-enough-token")
    page.get_by_role("button", name="Log in").click()
    expect(page.locator("h1")).to_have_text("Overview")
    expect(page.locator(".connection")).to_have_text("Live")
    assert asked
    assert all(url.startswith(f"{lab.address}/") and "long-enough" not in url for url in asked)
    assert page.evaluate("document.cookie") == ""
    page.tolerate("status of 401")  # the browser logs the 401


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_text_cannot_become_markup(lab, page):
    page.goto(lab.address)
    page.locator("h1").wait_for()
    assert (
        page.evaluate(
            "() => { try { document.body.innerHTML = '<b>x</b>'; return 'took it'; } catch (e) { return e.name; } }"
        )
        == "TypeError"
    )
    page.tolerate("TrustedHTML")  # the browser logs the violation


def test_the_demo_kills_a_worker_and_its_job_survives(chromium, page):
    with Server("", "demo", "--dashboard") as demo:
        page.goto(demo.address)
        button = page.get_by_role("button", name="kill -9 a worker")
        page.locator(".tiles a", has_text="running").locator("b", has_not_text=re.compile("^0$")).wait_for()
        status = page.locator(".demo p[role=status]")
        while not status.count():  # retries if no job is running
            button.click()
            page.wait_for_timeout(300)
        expect(status).to_contain_text(re.compile(r"Process \d+ was killed"))
        status.get_by_role("link").click()
        expect(page.locator(".timeline")).to_contain_text("lost", timeout=20_000)
        expect(page.locator(".timeline")).to_contain_text("Attempt 2", timeout=20_000)
        page.tolerate("status of 4")  # the browser logs the error of a click without a running job
        page.goto("about:blank")
