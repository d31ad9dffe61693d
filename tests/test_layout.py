"""The package's layout: few modules at its top, and a map of it that is true."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "holdfast"
MAP = (ROOT / "docs" / "architecture.md").read_text()


def test_at_most_eight_modules_stand_at_the_top():
    assert len(list(PACKAGE.glob("*.py"))) <= 8


def test_every_folder_says_what_it_is_about():
    for folder in {file.parent for file in PACKAGE.rglob("*.py")}:
        assert (folder / "__init__.py").read_text().startswith('"""'), folder


def named_paths() -> list[str]:
    return sorted(set(re.findall(r"`([a-z_]+/[a-z_/]*(?:\.py)?)`", MAP)))


@pytest.mark.parametrize("path", named_paths())
def test_the_map_names_what_there_is(path: str):
    places = (PACKAGE, PACKAGE / "worker", ROOT)
    assert any((place / path).exists() for place in places)


def named_files() -> list[str]:
    """The files that the table of folders names, each below the folder of its row."""
    rows = [line.split("|") for line in MAP.splitlines() if re.match(r"\| `[a-z_/]+/` \|", line)]
    return [f"{row[1].strip(' `')}{name}" for row in rows for name in re.findall(r"`([a-z_]+\.py)`", row[2])]


def test_the_table_of_folders_names_what_there_is():
    assert len(named_files()) > 40
    assert [name for name in named_files() if not (PACKAGE / name).exists()] == []


@pytest.mark.parametrize("folder", sorted(one.name for one in PACKAGE.iterdir() if (one / "__init__.py").exists()))
def test_the_map_has_every_folder(folder: str):
    assert f"`{folder}/" in MAP
