"""Generated mutants: which there are, that the same seed gives the same, and that every area has its files and tests.

`python -m lab mutate` plants a sample of them, which takes an hour or two.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from lab.mutation import command
from lab.mutation.areas import AREAS
from lab.mutation.explained import EXPLAINED
from lab.mutation.generate import compiles, function_at, mutants

ROOT = Path(__file__).resolve().parents[2]
SOURCE = '''
"""A docstring."""
LIMIT = 5
if TYPE_CHECKING:
    from x import y

def check(a: int = 1, b: "str | None" = None) -> bool:
    """Says nothing of 3 < 4."""
    logger.info("more than %d", 7 + 1)
    if not a > LIMIT:
        return False
    if a and b:
        raise ValueError(f"{a + 1} is too much" + "!")
    self.kept = min(a, 2)
    await asyncio.sleep(0.5)
    said = "a few" if a < 3 else "many"
    hmac.compare_digest(said, b)
    each = [one for one in zip(a, b, strict=True)]
    return pair(a, b)
'''
EXPECTED = {
    ("constant", "1", "2"),
    ("condition", "not a > LIMIT", "(not (not a > LIMIT))"),
    ("guard", "if not a > LIMIT:\n        return False", "pass"),
    ("negation", "not a > LIMIT", "(a > LIMIT)"),
    ("comparison", "a > LIMIT", "(a >= LIMIT)"),
    ("constant", "False", "True"),
    ("condition", "a and b", "(not (a and b))"),
    ("guard", 'if a and b:\n        raise ValueError(f"{a + 1} is too much" + "!")', "pass"),
    ("boolean", "a and b", "(a or b)"),
    ("condition left out", "a and b", "(a)"),
    ("condition left out", "a and b", "(b)"),
    ("statement", "self.kept = min(a, 2)", "pass"),
    ("bound", "min(a, 2)", "max(a, 2)"),
    ("constant", "2", "3"),
    ("statement", "hmac.compare_digest(said, b)", "pass"),
    ("arguments", "zip(a, b, strict=True)", "zip(b, a, strict=True)"),
    ("return", "return pair(a, b)", "return None"),
    ("arguments", "pair(a, b)", "pair(b, a)"),
}


def test_mutants_change_what_a_program_does_and_nothing_else():
    source = SOURCE.replace("def check", "async def check")
    found = mutants("x.py", source)
    assert {(one.kind, one.old, one.new) for one in found} == EXPECTED
    assert all(compiles(one.applied(source)) for one in found)
    assert all(one.new in one.applied(source) for one in found)


def test_letters_of_several_bytes_do_not_move_a_mutant():
    source = "def f():\n    g('é…', y < 1)\n"
    assert "def f():\n    g('é…', (y <= 1))\n" in {one.applied(source) for one in mutants("x.py", source)}


def test_a_line_belongs_to_the_innermost_function_around_it():
    source = "x = 1\n\n@mark\ndef f():\n    def g():\n        y\n    z\n"
    assert [function_at(source, line) for line in range(1, 8)] == [0, 0, 3, 3, 5, 5, 3]


def test_a_test_that_calls_the_mutant_goes_first_and_a_short_one_before_a_long_one():
    area = next(area for area in AREAS if area.name == "group commit")
    [one] = command.sample(ROOT, 1, 1, [area])
    function = f"{one.mutant.file}:{function_at(one.source, one.mutant.start[0])}"
    seconds = {"other": 0.1, "long": 2.0, "short": 1.0}
    calls = {"other": {"elsewhere.py:1"}, "long": {function}, "short": {function}}
    assert command.Measured(3.0, seconds, calls).order(one) == ["short", "long", "other"]


def test_a_seed_chooses_the_same_mutants_evenly_over_the_areas():
    areas = [area for area in AREAS if area.name in ("lifecycle", "group commit", "heartbeat")]
    first, again, other = ([one.mutant.key for one in command.sample(ROOT, seed, 12, areas)] for seed in (1, 1, 2))
    assert first == again != other
    assert len(set(first)) == 12
    names = [one.area.name for one in command.sample(ROOT, 1, 12, areas)]
    assert {name: names.count(name) for name in set(names)} == dict.fromkeys((area.name for area in areas), 4)


@pytest.mark.parametrize("area", AREAS, ids=lambda area: area.name)
def test_an_area_has_its_files_and_its_tests(area):
    assert area.sources(ROOT)
    assert area.selected(ROOT)


def test_every_explained_mutant_is_still_made():
    made = {
        (file, one.line, one.old, one.new)
        for file in {file for file, *_ in EXPLAINED}
        for one in mutants(file, (ROOT / "src" / "holdfast" / file).read_text())
    }
    assert EXPLAINED.keys() - made == set(), "the source has changed: change the explanation with it"


@pytest.mark.extended
def test_a_mutant_is_caught_in_a_copy_and_its_result_is_kept(monkeypatch, capsys, tmp_path):
    area = next(area for area in AREAS if area.name == "group commit")
    monkeypatch.setattr(command, "AREAS", (area,))
    before = (ROOT / "src/holdfast/store/group_commit.py").read_bytes()
    results = tmp_path / "mutate.json"
    command.run(18, 1, 1, "", results)
    assert (ROOT / "src/holdfast/store/group_commit.py").read_bytes() == before
    command.run(18, 1, 1, "", results)
    assert "1 are known from before" in capsys.readouterr().out
