"""`holdfast migrate` and `holdfast doctor`."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from contextlib import closing
from functools import partial

import pytest
import typer

from holdfast import Holdfast, StoreUnavailable
from holdfast.cli import schema as commands
from holdfast.store.sqlite import SqliteStore, schema
from support.second_step import second_step
from support.workers import work_off


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


def test_refused_jobs_are_named_by_doctor_and_status_and_can_be_moved(terminal):
    async def refuse():
        async with Holdfast(f"sqlite:///{terminal.folder / 'holdfast.db'}") as app:
            await app.enqueue("old", 1)
            await work_off(app)

    asyncio.run(refuse())
    cause = "workers refused 1 job of task 'old' in queue 'default': UnknownTask: unknown task 'old'"
    assert f"warn  {cause}" in terminal("doctor")
    assert f"Warning: {cause}" in terminal("status")
    [refused] = terminal.json("status")["refused"]
    assert (refused["task"], refused["count"], refused["exact"]) == ("old", 1, True)
    assert "1 jobs match; none was moved." in terminal("move", "old", "new", "--dry-run")
    (terminal.folder / "shop.py").write_text(
        "from holdfast import Holdfast\napp = Holdfast()\n\n@app.task\ndef new(n: int) -> None: ...\n"
    )
    note = "holdfast: note: application shop:app has no task 'nwe'; did you mean 'new'?"
    assert note in terminal("move", "-A", "shop:app", "old", "nwe", "--dry-run")
    moved = terminal("move", "-A", "shop:app", "old", "new")
    assert "1 of 1 jobs moved from task old to new." in moved
    assert "note" not in moved
    assert cause not in terminal("status")


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


def test_doctor_keeps_its_findings_if_the_store_cannot_be_opened(tmp_path, capsys, monkeypatch):
    url = f"sqlite:///{tmp_path}/jobs.db"
    commands.migrate(url=url)

    async def fail(_store):
        raise StoreUnavailable("the disk is full")

    monkeypatch.setattr(SqliteStore, "open", fail)
    with pytest.raises(typer.Exit) as raised:
        commands.doctor(url=url)
    output = capsys.readouterr().out
    assert raised.value.exit_code == 1
    assert "a test write failed: the disk is full" in output
    assert "refused jobs could not be read: the disk is full" in output
