"""Constants of the package: each number has one name, one place, and a docstring with its unit or its reason."""

from collections import defaultdict
from pathlib import Path

from holdfast import Backoff
from holdfast.core.job import NewJob
from holdfast.core.settings import Settings
from support import figures

PACKAGE = Path(__file__).parent.parent / "src" / "holdfast"
OWN = {
    "LATEST": "each engine has a schema of its own, and a version of it",
}
"""Names that several modules may use, and why."""


def test_a_name_is_defined_in_one_module():
    places: dict[str, list[str]] = defaultdict(list)
    for module, name, value, _ in figures.constants(PACKAGE):
        places[name].append(f"{module}: {value}")
    assert {name: found for name, found in places.items() if len(found) > 1 and name not in OWN} == {}


def test_a_number_says_its_unit_or_its_reason():
    found = list(figures.constants(PACKAGE))
    assert len(found) > 200
    assert [f"{module}: {name}" for module, name, _, doc in found if not doc] == []


def test_what_a_value_has_by_itself_is_the_default_of_its_setting():
    settings = Settings()
    assert Backoff() == settings.rules.backoff
    assert NewJob("id", "task", "queue", b"").max_attempts == settings.max_attempts
