"""What the repository must not contain: places of one machine, and the registry it installs from."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# Written so that this file does not match itself.
FORBIDDEN = {
    "a path of one machine": re.compile(r"(?<![\w.])/(?:root|work|home/[\w.-]+|Users/[\w.-]+)/"),
    "a registry's host name": re.compile(r"pypi\.org|python[h]osted|registry\.npm[j]s"),
}


def tracked_files() -> list[Path]:
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z"]
    try:
        listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    return [file for name in listing.split("\0") if name and (file := ROOT / name).is_file()]


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_tracked_file_mentions(what: str):
    found = [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()}"
        for file in tracked_files()
        for number, line in enumerate(file.read_text(errors="replace").splitlines(), start=1)
        if FORBIDDEN[what].search(line)
    ]
    assert not found, "\n".join(found)


def test_a_browser_waits_for_functions_and_not_for_texts():
    """A text is evaluated at each look, which a page with a Content-Security-Policy refuses from the second look on."""
    waits = re.compile(r"wait_for_function\(\s*f?[\"'](?!\(.*\) =>|\w+ =>)")
    texts = {file: file.read_text() for file in tracked_files() if file.suffix == ".py"}
    found = [
        f"{file.relative_to(ROOT)}: {match.group()}" for file, text in texts.items() for match in waits.finditer(text)
    ]
    assert not found, "\n".join(found)
