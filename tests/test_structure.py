"""What `make structure` counts, on a package of a few lines."""

from pathlib import Path

import pytest

from support import figures, structure

PACKAGE = {
    "app.py": """
class Holdfast(Part):
    def use(self):
        return self.session
""",
    "client/part.py": """
import re
LIMIT = 50
class Answer(Struct): pass
class Longer(Answer): pass
class Part:
    def ended(self, record, error):
        if (record.error or "").startswith("not run") or "full" in str(error):
            return record.waiting_for.partition(":")
        return f"job:{record.id}"
    def fine(self, url, name):
        return url.startswith("http:") and "full" in name
""",
    "client/asking.py": """
from .values import Same
class Asked(Same): pass
""",
    "client/values.py": "class Same(Struct): pass",
    "client/another.py": "class Same: pass\nclass Answer: pass",
    "worker/run.py": """
def run(app, queue, priority, timeout, retry, delay, key, tags, *, meta):
    '''Says nothing.'''

    return app.session.store  # a comment
def few(queue, priority): pass
class Options:
    queue: str
    priority: int
    timeout: float
    retry: int
    delay: int
    key: str
    tags: str
    limit: str
""",
    "core/waiting.py": "def parsed(waits): return waits.startswith('job:')",
    "testing/part.py": "def ended(error): return str(error).startswith('x')",
    "sync/app.py": """
def blocking(method):
    return method
class SyncApp:
    def __init__(self, run):
        self._run = run
    @property
    def id(self):
        return 1
    job = blocking(1)
    def enqueue(self):
        '''Says something.'''
        return self._run(1)
""",
    "store/lua/claim.lua": "local LIMIT = 50\nlocal OTHER = 50\nlocal id, now = job[1], ARGV[2] -- job[3]\n"
    "local first, queue, at = jobs[1], job[2], call('TIME')[2] + list()[1]\n",
    "store/schema.sql": "UPDATE job SET waiting_for = 'limit_key:' || name",
}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for name, text in PACKAGE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_service_that_inherits_from_another_is_counted_and_a_value_is_not(package: Path):
    assert figures.inheritance(package) == [["Holdfast", "Part"]]


def test_a_decision_from_text_is_counted_once_per_line_outside_the_one_parser(package: Path):
    assert list(figures.text_decisions(package)) == [
        "client/part.py:8",
        "client/part.py:9",
        "client/part.py:10",
        "store/schema.sql:1",
    ]


def test_places_that_spell_out_many_options_are_counted(package: Path):
    assert figures.option_places(package) == ["worker/run.py:2 run (8)", "worker/run.py:7 Options (8)"]


def test_blocking_methods_count_where_they_are_written_out(package: Path):
    assert figures.blocking_methods(package) == {"sync/app.py:7 SyncApp.id": 3, "sync/app.py:11 SyncApp.enqueue": 3}


def test_the_session_of_an_app_is_counted_by_who_takes_it(package: Path):
    assert figures.session_places(package) == (["worker/run.py:5"], ["app.py:4"])


def test_constants_and_positions_in_lua_are_counted(package: Path):
    positions, twice = figures.restated(package)
    assert positions == [f"store/lua/claim.lua: {place}" for place in ("job[1]", "job[2]", ")[2]")]
    assert twice == ["store/lua/claim.lua: LIMIT = 50"]


def test_lines_are_counted_with_and_without_what_is_not_code(package: Path):
    assert figures.lines([package / "worker" / "run.py"]) == (15, 13, 12)


MISSED = {
    "files that name the stored field `changed_at`",
    "files that name the stored field `saves`",
    "lines of Python without `testing/`",
}


@pytest.mark.extended
def test_no_other_figure_of_this_package_misses_its_target():
    missed = {
        figure["name"]: figure["details"] for figure in structure.measured(structure.ROOT) if structure.missed(figure)
    }
    assert {name: details for name, details in missed.items() if name not in MISSED} == {}
