"""`holdfast migrate` and `holdfast doctor`."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from functools import partial

import pytest
import typer

from holdfast.cli import schema as commands
from holdfast.store.sqlite import schema
from support.second_step import second_step


def test_migrate_checks_applies_and_is_idempotent(terminal):
    assert "Missing schema versions: 1;" in terminal("migrate", "--check", code=1)
    assert "Applied version 1" in terminal("migrate")
    assert "up to date" in terminal("migrate", "--check")
    assert "up to date" in terminal("migrate")


@pytest.mark.parametrize(
    ("command", "output"),
    [
        (partial(commands.migrate, check=True), "Missing schema versions: 2;"),
        (commands.doctor, "schema version 1; this Holdfast uses 2\n      run `holdfast migrate`"),
    ],
    ids=["check", "doctor"],
)
def test_a_missing_migration_is_reported(tmp_path, capsys, command, output):
    url = f"sqlite:///{tmp_path}/jobs.db"
    commands.migrate(url=url)
    with second_step(schema, "CREATE TABLE holdfast_next (word TEXT);"):
        with pytest.raises(typer.Exit) as raised:
            command(url=url)
        assert raised.value.exit_code == 1
        assert output in capsys.readouterr().out
        commands.migrate(url=url)
        assert capsys.readouterr().out == "Applied version 2.\n"


def test_the_dumped_schema_creates_a_store(terminal):
    with closing(sqlite3.connect(terminal.folder / "holdfast.db")) as database:
        database.executescript(terminal("migrate", "--dump-sql"))
        assert database.execute("SELECT count(*) FROM holdfast_job").fetchone() == (0,)
    assert "up to date" in terminal("migrate", "--check")
    assert "up to date" in terminal("migrate")


def test_doctor_finds_no_problem_in_a_valid_store(terminal):
    terminal("migrate")
    assert "look" not in terminal("doctor")
    assert all(finding["fine"] for finding in terminal.json("doctor"))


def test_doctor_reports_problems(terminal):
    terminal("migrate")
    (terminal.folder / "holdfast.db").chmod(0o644)
    assert "chmod 600" in terminal("doctor", code=1)


def test_a_store_without_a_schema_is_reported(terminal):
    assert "has no schema" in terminal("migrate", "--url", "memory://")


def test_doctor_reports_a_newer_schema(terminal):
    terminal("migrate")
    with closing(sqlite3.connect(terminal.folder / "holdfast.db")) as database, database:
        database.execute("INSERT INTO holdfast_schema (version, applied_at) VALUES (999, 0)")
    output = terminal("doctor", code=1)
    assert "schema version 999" in output
    assert "upgrade Holdfast" in output
    assert "holdfast migrate" not in output


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for root")
def test_doctor_finds_a_file_that_cannot_be_written(terminal):
    terminal("migrate")
    (terminal.folder / "holdfast.db").chmod(0o400)
    assert "cannot be written" in terminal("doctor", code=1)


def test_doctor_finds_what_opening_refuses(terminal):
    (terminal.folder / "holdfast.db").mkdir()
    assert "is a folder; a SQLite store is a file" in terminal("doctor", code=1)
