"""A real browser for tests: Chromium of the system, driven by Playwright; and a server process to look at."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager

FEATURES_OFF = (
    # Two pages of its own behind the address bar of each window: a third of the CPU of a short test.
    "WebUIOmniboxPopup",
    "WebUIOmniboxAimPopup",
    # The last list wins, so those of Playwright's that matter here are named again.
    "AvoidUnnecessaryBeforeUnloadCheckSync",
    "DestroyProfileOnBrowserClose",
    "HttpsUpgrades",
    "MediaRouter",
    "OptimizationHints",
    "PaintHolding",
)
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--force-color-profile=srgb",
    "--font-render-hinting=none",
    f"--disable-features={','.join(FEATURES_OFF)}",
]


def chromium() -> str | None:
    """Where the browser is; None where there is none."""
    return next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
    )


def why_not() -> str | None:
    """Why there is no browser; None where there is one."""
    if chromium() is None:
        return "no Chromium on this machine (Debian: apt-get install --no-install-recommends chromium)"
    return None


@contextmanager
def browser():
    """The browser, without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        launched = play.chromium.launch(executable_path=chromium(), headless=True, args=ARGUMENTS)
        try:
            yield launched
        finally:
            launched.close()


def look(page, lab, where: str = "") -> None:
    """Go to a page of the dashboard, and wait until it has something to show."""
    page.goto("about:blank")  # else what was there before may be taken for it
    page.goto(f"{lab.address}/{where}")
    page.locator(".page h1").wait_for()
    page.locator(".loading").wait_for(state="detached")


class Server:
    """`holdfast serve` (or another command that says where it is) in a process of its own."""

    def __init__(self, url: str, *words: str, **environment: str) -> None:
        command = words or ("serve", "--port", "0", "--url", url)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "holdfast", *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env={**os.environ, **environment},
        )
        said = []
        for line in self._process.stdout:
            said.append(line)
            if (found := re.search(r"http://[\w.\[\]:]+", line)) is not None:
                self.address = found[0]
                return
        raise AssertionError(f"the server did not start: {''.join(said)}")

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self._process.poll() is None:
            self._process.send_signal(how)
        self._process.wait(90)
        self._process.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
