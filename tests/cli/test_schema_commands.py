"""`holdfast migrate` and `holdfast doctor`."""

from __future__ import annotations

import sqlite3


def test_migrate_says_what_is_missing_then_brings_it_then_has_nothing_to_do(terminal):
    assert "Missing: version 1" in terminal("migrate", "--check", code=1)
    assert "Applied version 1" in terminal("migrate")
    assert "up to date" in terminal("migrate", "--check")
    assert "up to date" in terminal("migrate")


def test_the_dumped_schema_is_sql_that_runs(terminal):
    database = sqlite3.connect(":memory:")
    database.executescript(terminal("migrate", "--dump-sql"))
    assert database.execute("SELECT count(*) FROM holdfast_job").fetchone() == (0,)
    database.close()


def test_doctor_has_nothing_to_say_about_a_sound_store(terminal):
    terminal("migrate")
    assert "look" not in terminal("doctor")
    assert all(finding["fine"] for finding in terminal.json("doctor"))


def test_doctor_points_at_what_is_wrong(terminal):
    terminal("migrate")
    (terminal.folder / "holdfast.db").chmod(0o644)
    assert "chmod 600" in terminal("doctor", code=1)


def test_a_store_without_a_schema_says_so(terminal):
    assert "has no schema" in terminal("migrate", "--url", "memory://")
