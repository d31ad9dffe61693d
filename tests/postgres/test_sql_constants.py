"""Constants: SQL has its numbers from Python, and version 1 of the schema stays as it is.

After a change before the first release: `python tests/postgres/test_sql_constants.py` writes constants.txt anew.
"""

import re
from pathlib import Path

import pytest

from holdfast.store.postgres import schema
from holdfast.store.postgres.constants import CONSTANTS, filled

GOLDEN = Path(__file__).with_name("constants.txt")
FILES = sorted(schema.MIGRATIONS.rglob("*.sql"))
SMALL = 1000
"""Smaller numbers may mean anything."""


def listing():
    return "".join(f"{name} = {value}\n" for name, value in CONSTANTS.items())


def test_the_constants_of_the_schema_are_unchanged():
    assert listing() == GOLDEN.read_text(), "a schema that exists has the old numbers: it needs a new step"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_says_no_number_that_has_a_name(path):
    other = r"--[^\n]*|autovacuum_\w+ = [\d.]+|micros\(\) / 1000"  # comments, settings, milliseconds
    code = re.sub(other, "", path.read_text())
    said = {int(number) for number in re.findall(r"(?<![\w.])-?\d+\b", code)}
    assert said & {value for value in CONSTANTS.values() if isinstance(value, int) and abs(value) >= SMALL} == set()


def test_every_number_is_used_and_every_name_is_filled_in():
    used = set(re.findall(r"\{([A-Z_]+)\}", "".join(path.read_text() for path in FILES)))
    assert used == CONSTANTS.keys()
    assert not re.search(r"\{[A-Z_]+\}", "".join(schema.steps().values()))
    with pytest.raises(KeyError):
        filled("LIMIT {NOTHING}")


if __name__ == "__main__":
    GOLDEN.write_text(listing())
