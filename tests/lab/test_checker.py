"""What the checker of histories says, and what it reads."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.testing.history import JournalFile, Terms, acknowledged, began, check, read
from support.story import Story


def test_a_failure_names_the_job_and_reports_its_whole_story():
    story = Story()
    story.whole("innocent")
    story.enqueue("victim")
    story.claim("victim")
    reported = check(story.entries).explain()
    assert "no_acknowledged_job_is_lost: job victim" in reported
    assert "claimed fence=1" in reported
    assert "innocent" not in reported


def test_a_run_is_checked_only_for_its_own_features():
    story = Story()
    story.enqueue()
    story.claim()
    story.settle()
    story.end()
    assert check(story.entries, Terms(runs=False)).violations == []


def test_an_ask_without_an_answer_excuses_a_job_passed_over_only_where_a_store_has_locks():
    story = Story()
    story.enqueue("first")
    story.enqueue("second")
    story.ask()
    story.claim("second", place=(0, 0, 2))
    story.claim("first", place=(0, 0, 1))
    story.finish("first", "second")
    assert check(story.entries, Terms(locks=True)).violations == []
    [broken] = check(story.entries, Terms(locks=False)).violations
    assert broken.rule == "the_first_in_order_is_claimed_first"


def test_a_journal_file_keeps_whole_lines_whatever_happens_to_its_writer(tmp_path):
    path = tmp_path / "journal"
    journal = JournalFile(path)
    journal.write(acknowledged("a"), began("a", 1))
    with path.open("ab") as file:
        file.write(b'{"event":"ran","jo')  # killed in the middle of a line
    assert [entry.event for entry in read(path)] == ["acked", "began"]
    journal.write(acknowledged("b"))  # by another process
    assert [(entry.event, entry.job) for entry in read(path)][2:] == [("acked", "b")]
    with path.open("ab") as file:
        file.write(b"no event\n")
    with pytest.raises(msgspec.DecodeError):
        list(read(path))


def test_an_acknowledged_job_that_was_deleted_is_lost_where_nobody_deletes():
    story = Story()
    story.enqueue()
    story.change(what="delete")
    assert check(story.entries, Terms(deletes=True)).violations == []
    [broken] = check(story.entries, Terms(deletes=False)).violations
    assert broken.rule == "no_acknowledged_job_is_lost"
