"""The Django project of `tests/contrib/django_project`: its commands, as processes of their own, on a database."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[1] / "contrib" / "django_project"
LIMIT = 250.0


class Project:
    """A folder with the project, and the environment of its processes: STORE_… and others."""

    def __init__(self, folder: Path = PROJECT, **environment: str) -> None:
        kept = {name: text for name, text in os.environ.items() if not name.startswith(("HOLDFAST_", "DJANGO_"))}
        self.folder = folder
        self.environment = {**kept, "DJANGO_SETTINGS_MODULE": "store.settings", **environment}

    def run(self, *words: str, code: int = 0) -> str:
        """What a Python program prints, which must end with this exit code."""
        done = subprocess.run(
            [sys.executable, "-W", "error", *words],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def manage(self, *words: str, code: int = 0) -> str:
        """What `manage.py` prints."""
        return self.run("manage.py", *words, code=code)

    def shell(self, code: str) -> str:
        """What Python code prints in the project, without its last newline."""
        return self.run("-c", f"import django; django.setup()\n{code}").rstrip("\n")

    def start(self, *words: str, log: Any = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        """A program that runs beside the test."""
        return subprocess.Popen([sys.executable, *words], cwd=self.folder, env=self.environment, stdout=log, stderr=log)
