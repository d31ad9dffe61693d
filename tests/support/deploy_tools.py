"""Tools that check deploy/ and .github/ and make clients, in an environment of their own, which `fetch.py` makes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from .fetch import FOLDER

ENVIRONMENT = FOLDER / "deploy-tools"
LOCK = Path(__file__).resolve().parents[2] / "requirements" / "deploy.lock"
STAMP = ENVIRONMENT / "deploy.lock"
MISSING = "no tools for deployment files: python tests/support/fetch.py fetches them"


def installed() -> bool:
    return STAMP.exists() and STAMP.read_bytes() == LOCK.read_bytes()


def fetch() -> None:
    uv = [Path(sys.executable).parent / "uv", "--quiet"]
    subprocess.run([*uv, "venv", "--clear", "--python", sys.executable, ENVIRONMENT], check=True)
    python = ENVIRONMENT / "bin" / "python"
    subprocess.run([*uv, "pip", "install", "--python", python, "--require-hashes", "-r", LOCK], check=True)
    shutil.copy(LOCK, STAMP)


def run(tool: str, *words: str | Path, given: str | None = None) -> str:
    """What a tool prints, when it finds nothing wrong."""
    command = [ENVIRONMENT / "bin" / tool, *words]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{tool} {words}\n{done.stdout}\n{done.stderr}"
    return done.stdout
