"""Unique jobs, expiry and pauses of tasks in a terminal."""

import json


def test_a_unique_command_is_enqueued_once(terminal):
    first = terminal.json("enqueue", "--json", "--unique", "until_start", "--", "make report")
    again = terminal.json("enqueue", "--json", "--unique", "until_start", "--", "make report")
    assert (first["created"], again) == (True, {"id": first["id"], "created": False})
    terminal("enqueue", "--unique", "15m", "--key", "k", "--", "echo a")
    assert "already exists with this key" in terminal("enqueue", "--unique", "15m", "--key", "k", "--", "echo b")


def test_replace_and_debounce(terminal):
    terminal("enqueue", "--id", "d", "--key", "k", "--debounce", "1h", "--debounce-max", "1d", "--", "echo a")
    output = terminal("enqueue", "--key", "k", "--debounce", "1h", "--debounce-max", "1d", "--", "echo b")
    assert output == "Job d was waiting and has been replaced: echo b\n"
    assert terminal.job("d")["payload"] == {"command": "echo b"}
    terminal("enqueue", json.dumps({"command": "echo c", "key": "k", "replace": True}))
    job = terminal.job("d")
    assert (job["payload"], job["state"]) == ({"command": "echo c"}, "queued")


def test_expiry_is_shown(terminal):
    terminal("enqueue", "--id", "soon", "--expires", "2h", "--", "echo a")
    terminal("enqueue", "--id", "then", "--expires", "2099-01-31T12:00:00Z", "--", "echo a")
    assert terminal.job("then")["expires_at"] == "2099-01-31T12:00:00Z"
    assert "expires" in terminal("show", "soon")
    assert "it expires if it has not started before" in terminal("explain", "soon")


def test_a_task_is_paused_by_its_arguments_and_resumed(terminal):
    terminal("enqueue", "--task", "send", "--args", '{"customer": 43}')
    assert terminal("pause", "--task", "send", "--where", "customer=42") == (
        "Task send where customer=42 paused. Workers apply the pause within about one poll interval.\n"
    )
    assert terminal("pause", "--task", "send", "--where", "to=ann@example.com") != ""
    output = terminal.json("status")["paused_tasks"]
    assert output == [
        {"task": "send", "where": {"customer": 42}},
        {"task": "send", "where": {"to": "ann@example.com"}},
    ]
    for command in ("status", "queues"):
        assert (
            "Task send where customer=42 is paused; to resume it: holdfast resume --task send --where customer=42"
            in terminal(command)
        )
    terminal("enqueue", "--id", "j", "--task", "send", "--args", '{"customer": 42}')
    assert "task send where customer=42 is paused" in terminal("explain", "j")
    assert terminal("resume", "--task", "send", "--where", "customer=42") == "Task send where customer=42 resumed.\n"
    assert len(terminal.json("status")["paused_tasks"]) == 1


def test_unknown_names_are_paused_with_a_warning(terminal):
    assert terminal("pause", "mial") == (
        "Queue mial paused.\n"
        "queue 'mial' is paused, but no job, worker, schedule or task of this app uses it: check the spelling\n"
    )
    assert "task 'sned' is paused, but no job" in terminal("pause", "--task", "sned")
    assert [(queue["name"], queue["paused"]) for queue in terminal.json("queues")] == [("mial", True)]
    assert [one["task"] for one in terminal.json("status")["paused_tasks"]] == ["sned"]
    assert terminal("resume", "mial") == "Queue mial resumed.\n"


def test_resume_of_an_unpaused_name_lists_the_paused_ones(terminal):
    terminal("migrate")
    output = "holdfast: Queue mail is not paused, so it was not resumed; nothing is paused\n"
    assert terminal("resume", "mail", code=1) == output
    terminal("pause", "my mail")
    terminal("pause", "--task", "send", "--where", "customer=42")
    output = "is not paused, so it was not resumed; these are paused: 'my mail', --task send --where customer=42\n"
    assert terminal("resume", "mail", code=1) == f"holdfast: Queue mail {output}"
    assert terminal("resume", "--task", "send", code=1) == f"holdfast: Task send {output}"
    assert terminal("resume", "my mail") == "Queue my mail resumed.\n"


def test_a_dead_job_is_not_retried_while_another_job_has_its_key(terminal):
    for id in ("first", "second"):
        terminal("enqueue", "--id", id, "--unique", "until_end", "--key", "k", "--max-attempts", "1", "--", "exit 3")
        if id == "first":
            terminal("worker", "start", "--foreground", "--drain")
    refused = "job 'first' is dead: its key 'k' now belongs to job 'second'; wait until that job ends, or cancel it"
    assert refused in terminal("retry", "first", code=1)
    assert refused in terminal("dlq", "retry", "first", code=1)
    output = terminal("dlq", "retry", "--all")
    assert "0 jobs moved from DLQ to 'queued'." in output
    assert "1 skipped: 1 with the key of another unfinished job; `holdfast dlq retry ID`" in output
    terminal("cancel", "second")
    assert terminal("dlq", "retry", "--all") == "1 jobs moved from DLQ to 'queued'.\n"


def test_invalid_options_are_a_one_line_error(terminal):
    assert "give exactly one of a queue and --task" in terminal("pause", code=2)
    assert "--where takes NAME=VALUE" in terminal("pause", "--task", "t", "--where", "customer", code=2)
    assert "'unique' must be 'until_start', 'until_end', a number" in terminal(
        "enqueue", "--unique", "ever", "--", "x", code=2
    )
    assert "--replace and --debounce need --key" in terminal("enqueue", "--debounce", "5", "--", "x", code=2)
    assert "expires must be a time such as" in terminal("enqueue", "--expires", "2030-13-01", "--", "x", code=2)
    for wrong in ("soon", "-1"):
        said = terminal("enqueue", "--deadline", wrong, "--", "x", code=2)
        assert "a duration such as 15m, or a time such as 2030-01-31T12:00:00Z, not" in said
