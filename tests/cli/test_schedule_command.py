"""`holdfast schedule` in a terminal."""


def test_a_schedule_is_created_shown_paused_run_and_deleted(terminal):
    made = terminal("schedule", "put", "backup", "--cron", "0 3 * * *", "--tz", "Europe/Oslo", "--", "echo", "saved it")
    assert "Schedule backup: At 03:00 every day (Europe/Oslo); next run" in made
    [kept] = terminal.json("schedule", "list")
    assert (kept["name"], kept["task"], kept["cron"], kept["tz"]) == ("backup", "shell", "0 3 * * *", "Europe/Oslo")
    assert "backup" in terminal("schedule", "list")
    assert "paused" in terminal("schedule", "pause", "backup")
    assert "paused" in terminal("schedule", "list")
    assert "next run" in terminal("schedule", "resume", "backup")
    assert "enqueued by schedule backup" in terminal("schedule", "run", "backup")
    assert "echo 'saved it'" in terminal("list")
    assert "deleted" in terminal("schedule", "delete", "backup")
    assert terminal("schedule", "list").startswith("There are no schedules in sqlite:///holdfast.db")


def test_all_fields_of_a_schedule_are_shown(terminal):
    what = ("--task", "report", "--args", '{"day": "x"}', "--queue", "reports")
    terminal("schedule", "put", "report", "--every", "15m", *what)
    shown = terminal.json("schedule", "show", "report")
    assert (shown["payload"], shown["queue"], shown["every"], shown["error"]) == ({"day": "x"}, "reports", 900, None)
    assert set(shown) >= {"priority", "max_attempts", "timeout", "retry", "tags", "expires", "limits", "last_job"}
    output = terminal("schedule", "show", "report")
    assert "when       Every 15 minutes" in output
    assert '{"day":"x"}' in output
    assert "no schedule 'x'" in terminal("schedule", "show", "x", code=1)


def test_a_schedule_has_a_start_and_an_end(terminal):
    put = ("schedule", "put", "short", "--every", "1h")
    dates = ("--start", "2090-01-01T00:00Z", "--end", "3790000000")
    made = terminal(*put, *dates, "--", "true")
    assert "Every hour, from 2090-01-01 00:00 UTC, until 2090-02-05 17:46 UTC; next run 20" in made
    shown = terminal("schedule", "show", "short")
    assert "start      20" in shown
    assert "end        2090-02-0" in shown
    assert "no more runs" in terminal(*put, "--end", "2020-01-01T00:00Z", "--", "true")
    assert "no more runs" in terminal("schedule", "list")
    assert "--end needs a time zone" in terminal(*put, "--end", "2020-01-01", "--", "true", code=2)
    wrong = ("--start", "3790000000", "--end", "1970-01-01T01:00Z")
    assert "from --start to --end" in terminal(*put, *wrong, "--", "true", code=2)


def test_a_failed_run_is_reported(terminal):
    terminal("schedule", "put", "often", "--every", "1", "--", "echo", "x" * 2000)
    terminal("config", "set", "max_payload", "1024")
    terminal("worker", "start", "--count", "1")
    terminal.until(lambda: terminal.json("schedule", "show", "often")["error"], 30)
    terminal("worker", "stop")
    assert "error      PayloadTooLarge" in terminal("schedule", "show", "often")
    assert "Schedule often: the last run could not be enqueued: PayloadTooLarge" in terminal("schedule", "list")


def test_a_worker_runs_what_is_due(terminal):
    terminal("schedule", "put", "often", "--every", "1", "--", "echo hello")
    terminal("worker", "start", "--count", "1")
    terminal.until(lambda: terminal.json("status")["counts"]["succeeded"] >= 2, 30)
    terminal("worker", "stop")


def test_errors_are_reported_and_nothing_is_stored(terminal):
    assert "invalid cron line" in terminal("schedule", "put", "x", "--cron", "61 * * * *", "--", "true", code=2)
    assert "unknown time zone" in terminal(
        "schedule", "put", "x", "--cron", "@daily", "--tz", "Oz", "--", "true", code=2
    )
    assert "--tz needs --cron" in terminal("schedule", "put", "x", "--every", "5", "--tz", "Oz", "--", "true", code=2)
    assert "catch-up" in terminal("schedule", "put", "x", "--every", "5", "--catch-up", "1.5", "--", "true", code=2)
    assert "give exactly one of --cron and --every" in terminal("schedule", "put", "x", "--", "true", code=2)
    assert "it needs -- COMMAND, or --task NAME" in terminal("schedule", "put", "x", "--every", "5", code=2)
    assert "not both" in terminal("schedule", "put", "x", "--every", "5", "--task", "t", "--", "true", code=2)
    put = ("schedule", "put", "x", "--every", "5", "--task", "t")
    assert "--args: invalid JSON: trailing characters (byte 3)" in terminal(*put, "--args", "1 2", code=2)
    assert "--every takes seconds" in terminal("schedule", "put", "x", "--every", "soon", "--", "true", code=2)
    assert "no schedule 'x'" in terminal("schedule", "pause", "x", code=1)
    assert terminal.json("schedule", "list") == []


DECLARED = """
from holdfast import Holdfast

app = Holdfast()


@app.cron(every=3600)
def nightly() -> None: ...
"""


def test_changes_of_a_declared_schedule_print_a_note(terminal):
    (terminal.folder / "shop.py").write_text(DECLARED)
    terminal("-A", "shop:app", "worker", "start", "--foreground", "--drain")
    changed = terminal("schedule", "put", "nightly", "--every", "60", "--task", "nigtly", "-A", "shop:app")
    assert "the next worker that starts with that code reverts the change" in changed
    assert "application shop:app has no task 'nigtly'; did you mean 'nightly'?" in changed
    terminal("-A", "shop:app", "worker", "start", "--foreground", "--drain")
    assert terminal.json("schedule", "show", "nightly")["every"] == 3600
    assert "the next worker that starts with that code creates it again" in terminal("schedule", "delete", "nightly")
    assert "declared" not in terminal("schedule", "put", "mine", "--every", "60", "--", "true")
    assert "declared" not in terminal("schedule", "delete", "mine")
