"""`holdfast schedule`, as one types it."""


def test_a_schedule_is_made_shown_paused_run_and_deleted(terminal):
    said = terminal("schedule", "put", "backup", "--cron", "0 3 * * *", "--tz", "Europe/Oslo", "--", "echo", "saved it")
    assert "Schedule backup: At 03:00 every day (Europe/Oslo); next run" in said
    [kept] = terminal.json("schedule", "list")
    assert (kept["name"], kept["task"], kept["cron"], kept["tz"]) == ("backup", "shell", "0 3 * * *", "Europe/Oslo")
    assert "backup" in terminal("schedule", "list")
    assert "paused" in terminal("schedule", "pause", "backup")
    assert "paused" in terminal("schedule", "list")
    assert "next run" in terminal("schedule", "resume", "backup")
    assert "enqueued by schedule backup" in terminal("schedule", "run", "backup")
    assert "echo 'saved it'" in terminal("list")
    assert "deleted" in terminal("schedule", "delete", "backup")
    assert "There are no schedules" in terminal("schedule", "list")


def test_a_worker_runs_what_is_due(terminal):
    terminal("schedule", "put", "often", "--every", "1", "--", "echo hello")
    terminal("worker", "start", "--count", "1")
    terminal.until(lambda: terminal.json("status")["counts"]["succeeded"] >= 2, 30)
    terminal("worker", "stop")


def test_mistakes_are_told_and_nothing_is_stored(terminal):
    assert "no cron line" in terminal("schedule", "put", "x", "--cron", "61 * * * *", "--", "true", code=2)
    assert "no time zone" in terminal("schedule", "put", "x", "--cron", "@daily", "--tz", "Oz", "--", "true", code=2)
    assert "either a cron line or every=" in terminal("schedule", "put", "x", "--", "true", code=2)
    assert "say what to run" in terminal("schedule", "put", "x", "--every", "5", code=2)
    assert "--every takes seconds" in terminal("schedule", "put", "x", "--every", "soon", "--", "true", code=2)
    assert "no schedule 'x'" in terminal("schedule", "pause", "x", code=1)
    assert terminal.json("schedule", "list") == []
