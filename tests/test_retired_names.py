"""Retired names stay retired: `retired_names.txt` lists them with what to use instead."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent
LIST = "tests/retired_names.txt"
KEPT = ("CHANGELOG.md", LIST, "lab/results/", "bench/results/", "docs/images/")
"""The changelog has the table of old and new names; results are records of past runs."""


def retired():
    lines = (ROOT / LIST).read_text().splitlines()
    return dict(line.split(" | ") for line in lines if line and not line.startswith("#"))


def pattern(names):
    """Whole words; a name that ends in a sign, as `name=` does, is found whatever follows."""
    ends = [re.escape(name) + (r"(?![\w-])" if name[-1].isalnum() else "(?!=)") for name in names]
    return re.compile(r"(?<![\w-])(" + "|".join(sorted(ends, key=len, reverse=True)) + ")")


def hits(text, found):
    for number, line in enumerate(text.splitlines(), 1):
        for match in found.finditer(line):
            yield number, match[1], line.strip()[:120]


def test_no_retired_name_is_used():
    names = retired()
    found = pattern(names)
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    wrong = []
    for file in files:
        if not file or file.startswith(KEPT) or not (ROOT / file).is_file():
            continue
        try:
            text = (ROOT / file).read_text()
        except UnicodeDecodeError:
            continue
        wrong += [f"{file}:{number}: {name!r} -> {names[name]!r}: {line}" for number, name, line in hits(text, found)]
    assert not wrong, "\n".join(wrong[:200])


def test_a_retired_name_is_found_as_a_whole_word_only():
    found = pattern(["plum", "pear="])
    assert [name for _, name, _ in hits("a plum\nplums, aplum\nusing(pear=5)\nspear=5, pear == 5", found)] == [
        "plum",
        "pear=",
    ]
