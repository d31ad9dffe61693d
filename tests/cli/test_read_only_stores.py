"""A read-only file or folder: a worker prints one error and exits."""

import subprocess
import sys

import pytest

from support.postgres import as_nobody


def read_only(folder):
    for path in (*folder.rglob("*"), folder):
        path.chmod(0o500 if path.is_dir() else 0o400)


@pytest.mark.parametrize(
    ("url", "code", "words"),
    [
        ("sqlite:///{folder}/jobs.db", 2, "cannot be created or opened"),
        ("file://{folder}", 3, "cannot be written: Permission denied"),
    ],
    ids=["sqlite", "folder"],
)
def test_a_worker_ends(terminal, url, code, words):
    folder = terminal.folder / "store"
    folder.mkdir()
    url = url.format(folder=folder)
    terminal("enqueue", "--url", url, '{"command": "true"}')
    read_only(folder)
    command = [*as_nobody(), sys.executable, "-m", "holdfast", "worker", "start", "--drain", "--foreground"]
    done = subprocess.run(
        [*command, "--url", url],
        cwd=terminal.folder,
        env=terminal.env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code
    assert done.stderr.count(words) == 1
    assert "Traceback" not in done.stderr
