"""The page of `examples/fastapi`: an answer is shown while its job writes it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from lab.until import until
from playwright.sync_api import expect

from support.ports import free_port

EXAMPLE = Path(__file__).parents[2] / "examples" / "fastapi"
ANSWER = "You asked: Do they flicker? Our lamps are all of brass, and <b>none</b> of them flickers."


@pytest.fixture
def shop(tmp_path):
    """The shop as a server with a worker, and the folder in which it runs."""
    for name in ("shop.py", "ask.html"):
        shutil.copy(EXAMPLE / name, tmp_path)
    port = free_port()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    words = [sys.executable, "-m", "uvicorn", "shop:web", "--port", str(port), "--timeout-graceful-shutdown", "1"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(words, cwd=tmp_path, env=environment, stdout=log, stderr=log)
    address = f"http://127.0.0.1:{port}"
    try:
        until(lambda: _answers(address, process, tmp_path), "the shop answers")
        yield address
    finally:
        process.kill()
        process.wait()


def _answers(address, process, folder):
    assert process.poll() is None, (folder / "log").read_text()
    try:
        return httpx.get(f"{address}/jobs/unknown").status_code == 404
    except httpx.TransportError:
        return False


@pytest.mark.extended
def test_an_answer_appears_word_by_word_as_text(shop, page):
    page.goto(f"{shop}/ask")
    page.evaluate(
        """() => {
            window.seen = [];
            new MutationObserver(() => window.seen.push(document.querySelector("#answer").textContent))
                .observe(document.querySelector("#answer"), {childList: true, characterData: true, subtree: true});
        }"""
    )
    page.get_by_label("Question").fill("Do they flicker?")
    page.get_by_role("button", name="Ask").click()
    expect(page.locator("#state")).to_have_text("running")
    expect(page.locator("#answer")).to_contain_text("You asked:")
    expect(page.locator("#state")).to_have_text("succeeded")
    expect(page.locator("#answer")).to_have_text(ANSWER)
    assert page.locator("#answer b").count() == 0  # nothing of a job is HTML
    seen = [text for text in page.evaluate("window.seen") if text]
    assert len(seen) > 5
    assert all(f"{ANSWER} ".startswith(text) for text in seen)
    assert seen == sorted(seen, key=len)
