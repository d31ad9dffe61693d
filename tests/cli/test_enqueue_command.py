"""`holdfast enqueue`: stores a job, or prints a one-line error."""

import json

import pytest

from support.sizes import size


def test_a_job_from_json(terminal):
    spec = {"id": "job1", "command": "sleep 2 && echo hi", "max_retries": 3, "priority": -4, "queue": "mail"}
    spec |= {"timeout": 30, "delay": "2h", "tags": ["a", "b"], "key": "k1", "cwd": "/", "env": {"A": "1"}, "stdin": "x"}
    assert terminal("enqueue", json.dumps(spec)) == "Job job1 enqueued: sleep 2 && echo hi\n"
    job = terminal.job("job1")
    assert (job["task"], job["queue"], job["priority"], job["max_attempts"]) == ("shell", "mail", -4, 3)
    assert (job["timeout"], job["tags"], job["key"], job["state"]) == (30.0, ["a", "b"], "k1", "scheduled")
    assert job["payload"] == {"command": "sleep 2 && echo hi", "cwd": "/", "env": {"A": "1"}, "stdin": "x"}


def test_cmd_is_an_alias_of_command(terminal):
    assert terminal("enqueue", '{"id": "j", "cmd": "echo hi"}') == "Job j enqueued: echo hi\n"
    assert terminal.job("j")["payload"] == {"command": "echo hi"}


def test_a_job_from_a_command_line(terminal):
    assert "enqueued: echo 'a b' c" in terminal("enqueue", "--id", "w", "--", "echo", "a b", "c")
    assert "enqueued: echo hi | cat" in terminal("enqueue", "--id", "s", "--", "echo hi | cat")
    assert terminal.job("w")["payload"]["command"] == "echo 'a b' c"


def test_a_job_for_a_task(terminal):
    terminal("enqueue", "--id", "a", "--task", "add", "--args", "[1, 2]")
    terminal("enqueue", "--id", "b", "--task", "add", "--args", '{"a": 1}', "--queue", "sums")
    assert terminal.job("a")["payload"] == {"*": [1, 2]}
    assert (terminal.job("b")["payload"], terminal.job("b")["queue"]) == ({"a": 1}, "sums")


def test_a_task_of_the_application_has_its_options(terminal):
    (terminal.folder / "shop.py").write_text(
        "from holdfast import Holdfast\n"
        "app = Holdfast()\n"
        "@app.task(queue='mail', max_attempts=9)\n"
        "def send(to: str, copies: int = 1): ...\n"
    )
    terminal("enqueue", "-A", "shop:app", "--id", "x", "--task", "send", "--args", '["ann"]')
    job = terminal.job("x")
    assert (job["queue"], job["max_attempts"], job["payload"]) == ("mail", 9, {"to": "ann"})
    missed = terminal("enqueue", "-A", "shop:app", "--task", "sent", "--args", "[1]")
    assert "application shop:app has no task 'sent'; did you mean 'send'?" in missed
    assert "note" not in terminal("enqueue", "--task", "sent", "--args", "[1]")


BAD = {
    "not json": ("{", "invalid JSON"),
    "not an object": ("[1]", "a job must be a JSON object"),
    "unknown key": ('{"comand": "x"}', "unknown fields: 'comand'"),
    "no command": ('{"id": "x"}', "needs a 'command'"),
    "empty command": ('{"command": " "}', "needs a 'command'"),
    "both names": ('{"command": "x", "cmd": "y"}', "is given twice"),
    "a command that is a number": ('{"command": 5}', "needs a 'command'"),
    "an id that is a number": ('{"id": 5, "command": "x"}', "'id' must be a string"),
    "attempts in words": ('{"command": "x", "max_retries": "three"}', "max_attempts must be a whole number"),
    "priority in words": ('{"command": "x", "priority": "high"}', "priority must be a whole number"),
    "a time without a zone": ('{"command": "x", "run_at": "2030-01-01T00:00:00"}', "needs a time zone"),
    "no time at all": ('{"command": "x", "run_at": "soon"}', "run_at must be a time"),
    "a negative timeout": ('{"command": "x", "timeout": -1}', "timeout must be a number of seconds above 0"),
    "an environment of numbers": ('{"command": "x", "env": {"A": 1}}', "'env' must be an object of strings"),
    "a queue without a name": ('{"command": "x", "queue": ""}', "a queue name must be"),
    "plain words": ("echo hi", "invalid JSON"),
}


def test_an_invalid_job_is_a_one_line_error_and_not_stored(terminal):
    for text, reason in BAD.values():
        output = terminal("enqueue", text, code=2)
        assert output.startswith("holdfast: ")
        assert reason in output
        assert output.count("\n") == 1
    assert terminal.states() == {}


def test_a_time_without_a_zone_is_refused_with_examples(terminal):
    output = terminal("enqueue", "--at", "2036-01-01", "--", "x", code=2)
    assert output == "holdfast: --at needs a time zone: 2036-01-01T00:00:00Z, or 2036-01-01T00:00:00+01:00\n"
    terminal("enqueue", "--at", "2036-01-01T00:00:00Z", "--", "x")


def test_an_error_in_the_arguments_has_its_position(terminal):
    output = terminal("enqueue", "--task", "t", "--args", '["a" 1]', code=2)
    assert output.startswith("holdfast: --args: invalid JSON: ")
    assert "(byte 5)" in output


def test_an_existing_id_is_refused(terminal):
    terminal("enqueue", '{"id": "job1", "command": "echo hi"}')
    assert "job 'job1' already exists; the new job was not stored: use another --id" in terminal(
        "enqueue", '{"id": "job1", "command": "echo hi"}', code=1
    )


def test_the_same_key_gives_the_same_job(terminal):
    first = terminal.json("enqueue", '{"key": "k", "command": "echo hi"}')
    again = terminal.json("enqueue", '{"key": "k", "command": "echo hi"}')
    assert (first["created"], again["created"], again["id"]) == (True, False, first["id"])
    assert "belongs to job" in terminal("enqueue", '{"key": "k", "command": "echo other"}', code=1)


def test_the_option_of_a_job_overrides_the_stored_setting(terminal):
    terminal("config", "set", "max_retries", "7")
    terminal("enqueue", '{"id": "own", "command": "x", "max_retries": 1}')
    terminal("enqueue", '{"id": "usual", "command": "x"}')
    assert (terminal.job("own")["max_attempts"], terminal.job("usual")["max_attempts"]) == (1, 7)


@pytest.mark.sized
def test_thousands_of_jobs_from_a_file(terminal):
    many = size(10_000)
    lines = [json.dumps({"id": f"j{n}", "command": f"echo {n}"}) for n in range(many)]
    (terminal.folder / "jobs.jsonl").write_text("\n".join(lines) + "\n\n")
    assert terminal("enqueue", "--file", "jobs.jsonl") == f"{many} jobs enqueued\n"
    assert terminal.states() == {"queued": many}


def test_jobs_from_stdin(terminal):
    lines = '{"id": "a", "command": "echo 1"}\n{"id": "b", "cmd": "echo 2"}\n'
    assert terminal("enqueue", "-", stdin=lines) == "2 jobs enqueued\n"
    output = terminal("enqueue", "-", stdin=lines + '{"id": "c", "cmd": "echo 3"}\n', code=1)
    assert "1 jobs enqueued, 2 refused" in output
    assert "job 'a' already exists" in output


def test_one_invalid_line_and_no_job_of_the_file_is_stored(terminal):
    output = terminal("enqueue", "-", stdin='{"command": "x"}\n{"command": "x", "when": 1}\n', code=2)
    assert "line 2: the job has unknown fields: 'when'" in output
    assert terminal.states() == {}


def test_zero_is_a_valid_option_value(terminal):
    (terminal.folder / "shop.py").write_text(
        "from holdfast import Holdfast\napp = Holdfast()\n@app.task(priority=5, max_attempts=9)\ndef send(): ...\n"
    )
    terminal("enqueue", "-A", "shop:app", "--id", "x", "--task", "send", "--priority", "0", "--max-attempts", "0")
    assert (terminal.job("x")["priority"], terminal.job("x")["max_attempts"]) == (0, 0)
