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
    places = (PACKAGE, PACKAGE / "worker", PACKAGE / "contrib" / "django", ROOT)
    assert any((place / path).exists() for place in places)


HEADING = re.compile(r"^### `([a-z_/]+/)`$")
SHARED = re.compile(r"^### Every engine$")
ENGINES = ("bucket", "postgres", "redis", "remote", "sqlite")


def listed() -> dict[str, set[str]]:
    """The modules in the first column of each table of the map, by the heading above it."""
    found: dict[str, set[str]] = {}
    heading = ""
    for line in MAP.splitlines():
        if line.startswith("#"):
            heading = line
        elif line.startswith("`") and "| " in line:
            found.setdefault(heading, set()).update(re.findall(r"`([a-z0-9_/]+\.py)`", line.partition("| ")[0]))
    return found


def named_files() -> set[str]:
    """All modules that the tables name, each with its folder."""
    files = set[str]()
    for heading, names in listed().items():
        if SHARED.match(heading):
            files |= {f"store/{engine}/{name}" for engine in ENGINES for name in names}
        elif (folder := HEADING.match(heading)) is not None:
            files |= {f"{folder[1]}{name}" for name in names}
        elif heading == "### Top level and the rest":
            files |= names
    return files


def files_to_touch() -> list[tuple[str, str]]:
    """The paths in the lists of CONTRIBUTING.md, each with the folder that its row names, or none."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    lists = text[text.index("## Files to touch") : text.index("## Adding a store")]
    found = list[tuple[str, str]]()
    for row in lists.splitlines():
        for part in re.split(r"(?=in `src/holdfast/[a-z/]+/`: )", row):
            folder = re.match(r"in `([a-z/]+/)`: ", part)
            paths = re.findall(r"`([\w./]+(?:/|\.(?:py|md|sql|lua|js|css|json|toml)))`", part)
            found += [(folder[1] if folder else "", path) for path in paths]
    return sorted(set(found))


@pytest.mark.parametrize(("folder", "path"), files_to_touch())
def test_the_lists_of_files_to_touch_name_what_there_is(folder: str, path: str):
    places = (ROOT, PACKAGE, ROOT / folder)
    assert any((place / path).exists() for place in places)


def modules() -> set[str]:
    """All modules of the package, except for the inside of `testing/`."""
    found = {str(file.relative_to(PACKAGE)) for file in PACKAGE.rglob("*.py") if not file.stem.startswith("__")}
    return {name for name in found if not name.startswith("testing/")}


def test_the_map_names_every_module():
    assert modules() - named_files() == set(), "add a row to its folder's table in docs/architecture.md"


def test_the_tables_of_the_map_name_only_modules_that_exist():
    engines_may_lack = {f"store/{engine}/{name}" for engine in ENGINES for name in listed()["### Every engine"]}
    assert named_files() - modules() - engines_may_lack == set()


def test_the_map_stays_short():
    assert len(MAP.split()) < 3400


@pytest.mark.parametrize("folder", sorted(one.name for one in PACKAGE.iterdir() if (one / "__init__.py").exists()))
def test_the_map_has_every_folder(folder: str):
    assert f"`{folder}/" in MAP
