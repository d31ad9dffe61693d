"""`holdfast check`: report and exit codes."""

import json

OLD = """
from holdfast import Holdfast

app = Holdfast("sqlite:///old.db")

@app.task
def send(order: int) -> None: ...

@app.task
def gone() -> None: ...
"""
NEW = """
from holdfast import Holdfast

app = Holdfast("sqlite:///of-the-application.db")

@app.task
def send(order: int, to: str) -> None: ...
"""
GIVEN = """
from holdfast import Holdfast
from holdfast.core.clock import SystemClock
from holdfast.store.open import open_store

app = Holdfast(open_store("sqlite:///old.db", SystemClock()))

@app.task
def send(order: int) -> None: ...
"""


def test_refused_jobs_are_printed_with_exit_code_1(terminal):
    (terminal.folder / "old.py").write_text(OLD)
    (terminal.folder / "new.py").write_text(NEW)
    against = ("--against", "sqlite:///old.db")
    ids = [json.loads(terminal("enqueue", "--url", "sqlite:///old.db", "--task", name, "--args", args, "--json"))["id"]
           for name, args in (("send", '{"order": 1}'), ("send", '{"order": 2}'), ("gone", "{}"))]  # fmt: skip
    output = terminal("check", "-A", "new:app", *against, code=1)
    assert "2 jobs of task send: InvalidJob: send() missing 1 required argument: 'to'" in output
    assert "1 job of task gone: UnknownTask: unknown task 'gone'" in output
    assert all(id in output for id in ids)
    assert "Checked 3 jobs and schedules in sqlite:///old.db: 3 would be refused." in output
    assert "all would be accepted" in terminal("check", "-A", "old:app")
    assert "(the newest; raise --limit to check older ones)" in terminal(
        "check", "-A", "new:app", *against, "--limit", "1", code=1
    )
    found = json.loads(terminal("-A", "new:app", "check", *against, "--json", code=1))
    assert (found["checked"], found["refused"], found["groups"][0]["count"]) == (3, 3, 2)


def test_shell_jobs_are_accepted_if_the_workers_run_them(terminal):
    (terminal.folder / "old.py").write_text(OLD)
    terminal("enqueue", "--url", "sqlite:///old.db", "--", "true")
    assert "unknown task 'shell'" in terminal("check", "-A", "old:app", code=1)
    terminal("check", "-A", "old:app", "--shell")


def test_a_check_without_application_or_store_is_refused(terminal):
    (terminal.folder / "new.py").write_text(NEW)
    assert "-A module:app" in terminal("check", code=2)
    assert "none was created" in terminal("check", "-A", "new:app", code=3)
    assert not (terminal.folder / "of-the-application.db").exists()


def test_a_store_object_of_the_application_is_checked(terminal):
    (terminal.folder / "old.py").write_text(OLD)
    (terminal.folder / "given.py").write_text(GIVEN)
    terminal("enqueue", "--url", "sqlite:///old.db", "--task", "gone", "--args", "{}")
    assert "1 would be refused" in terminal("check", "-A", "given:app", code=1)


def test_a_store_where_nothing_waits_is_reported(terminal):
    (terminal.folder / "old.py").write_text(OLD)
    terminal("migrate", "--url", "sqlite:///old.db")
    output = terminal("check", "-A", "old:app")
    assert "Found no jobs and schedules to check in sqlite:///old.db" in output
    assert "all would be accepted" not in output
    assert "note: nothing waits in sqlite:///old.db" in output
