"""The help of the commands: in groups, and as a manual page."""

import shutil
import subprocess

import pytest
from tools import man

from holdfast.cli.commands import GROUPS


def test_help_lists_the_commands_under_headings(terminal):
    lines = terminal("--help").splitlines()
    headings = [title for line in lines for title in GROUPS if f" {title} " in line and "─" in line]
    assert headings == list(GROUPS)
    for title, group in GROUPS.items():
        start = next(number for number, line in enumerate(lines) if f" {title} " in line and "─" in line)
        shown = [line.split()[1] for line in lines[start + 1 :] if line.startswith("│ ") and line[2] != " "]
        assert shown[: len(group)] == list(group)


def test_the_manual_page_is_that_of_this_version():
    assert man.PAGE.read_text(encoding="utf-8") == man.text(), "run `make man`"


def test_the_manual_page_has_every_command_and_its_options():
    page = man.text()
    assert r".SS holdfast schedule put" in page
    assert r"\-\-max\-retries" in page
    assert all(f".SS holdfast {name}\n" in page for group in GROUPS.values() for name in group)


@pytest.mark.skipif(shutil.which("groff") is None, reason="there is no groff here")
def test_the_manual_page_is_valid():
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", "-z", man.PAGE], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr == ""


def test_max_retries_says_that_it_counts_the_first_run(terminal):
    assert "including the first" in " ".join(terminal("enqueue", "--help").replace("│", " ").split())
