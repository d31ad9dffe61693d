"""The planted defects: there are enough of them, each fits the source as it is, and planting one works.

`python -m lab mutants` plants all of them, which takes some minutes.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from lab.mutants import command
from lab.mutants.defects import DEFECTS, Defect

ROOT = Path(__file__).resolve().parents[2]


def test_there_are_thirty_or_more_and_every_promise_has_some():
    assert len(DEFECTS) >= 30
    assert {defect.promise for defect in DEFECTS} - {""} == set("DLFNBQIOCU")
    assert len({defect.what for defect in DEFECTS}) == len(DEFECTS)


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: f"{defect.file}: {defect.what}")
def test_a_defect_fits_the_source(defect):
    source = (ROOT / "src" / "holdfast" / defect.file).read_text()
    assert source.count(defect.old) == 1, "the source has changed: change the defect with it"
    assert defect.new != defect.old
    assert bool(defect.test) != bool(defect.seeds)
    if defect.test:
        assert (ROOT / defect.test.partition(" ")[0]).exists()


@pytest.mark.extended
def test_a_planted_defect_is_caught_and_the_working_tree_is_left_alone(capsys):
    before = (ROOT / "src/holdfast/worker/slots.py").read_bytes()
    assert command.run(only="worker/slots.py") == 0
    assert "1 of 1 planted defects caught" in capsys.readouterr().out
    assert (ROOT / "src/holdfast/worker/slots.py").read_bytes() == before


@pytest.mark.extended
def test_a_defect_that_nothing_catches_is_reported(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(command, "RESULTS", tmp_path / "mutants.json")
    harmless = Defect(
        "Q",
        "nothing is wrong",
        "worker/slots.py",
        "def note_quiet(self)",
        "def note_quiet(self, *, loudly: bool = False)",
        "tests/unit/test_worker_slots.py",
    )
    monkeypatch.setattr(command, "DEFECTS", (harmless,))
    assert command.run() == 1
    assert "MISSED" in capsys.readouterr().out
