"""Reading commands: tables, JSON and exit codes."""

import json
import subprocess
from datetime import datetime

import pytest

from support.terminal import HOLDFAST


@pytest.fixture
def stocked(terminal):
    """A terminal whose store has some jobs."""
    jobs = [{"id": f"a-rather-long-job-id-that-must-not-be-wrapped-into-two-lines-{n}", "cmd": "echo " + "x" * 99}
            for n in range(3)]  # fmt: skip
    jobs += [{"id": "later", "cmd": "x", "delay": 999}, {"id": "mail", "cmd": "x", "queue": "mail", "tags": ["t"]}]
    terminal("enqueue", "-", stdin="\n".join(map(json.dumps, jobs)))
    return terminal


def test_status_counts_every_state(stocked):
    output = stocked("status")
    assert "queued    │ 4" in output
    assert "dead      │ 0" in output
    assert "Active Workers: 0 []" in output
    counts = stocked.json("status")["counts"]
    assert (counts["queued"], counts["scheduled"], counts["succeeded"]) == (4, 1, 0)


def test_a_folder_counts_requests_without_a_price(terminal):
    url = f"file://{terminal.folder}/bucket"
    terminal("enqueue", "--url", url, "--", "true")
    output = terminal("status", "--url", url)
    assert "Requests: " in output
    assert "$" not in output
    assert set(terminal.json("status", "--url", url)["cost"]) == {"requests_per_job"}


READING = [
    ("status", 0), ("queues", 0), ("list", 0), ("show x", 1), ("explain x", 1), ("explain", 0), ("logs x", 1),
    ("cancel x", 1), ("retry x", 1), ("dlq list", 0), ("dlq retry x", 1), ("config list", 0),
    ("config get max_retries", 1), ("config unset max_retries", 1), ("token revoke x", 1),
    ("schedule list", 0), ("schedule show x", 1), ("flow list", 0), ("flow show x", 1), ("token list", 0),
    ("webhook list", 0), ("worker list", 0), ("worker stop", 0), ("purge --state dead --yes", 0),
    ("migrate --check", 1), ("doctor", 1), ("status --watch", 3), ("top", 3),
]  # fmt: skip


@pytest.mark.parametrize(
    ("command", "code", "url"),
    [(*each, "sqlite:///jobs.db") for each in READING]
    + [(*each, "file:///{}/jobs") for each in READING if "migrate" not in each[0]],  # a folder has no schema
)
def test_a_reading_command_creates_no_store(command, code, url, terminal):
    output = terminal(*command.split(), "--url", url.format(terminal.folder), code=code)
    assert "Traceback" not in output
    if not command.startswith(("migrate", "doctor", "worker stop")):
        assert f"there is no store at {url.format(terminal.folder)}" in output
    assert [file.name for file in terminal.folder.iterdir() if file.name != "state"] == []


def test_status_works_on_a_missing_store(terminal):
    assert "Active Workers: 0" in terminal("status")


def test_status_and_queues_print_the_store(stocked):
    place = f"sqlite:///holdfast.db ({stocked.folder.resolve()}/holdfast.db)"
    assert f"Store: {place}\n" in stocked("status")
    assert f"Store: {place}\n" in stocked("queues")
    assert stocked.json("status")["store"] == place


def test_state_aliases(stocked):
    page = stocked.json("list", "--state", "pending")
    assert len(page["jobs"]) == 4
    assert stocked("list", "--state", "completed").startswith(
        "No jobs found with state: succeeded in sqlite:///holdfast.db"
    )
    assert "unknown state 'odd'" in stocked("list", "--state", "odd", code=2)


def test_a_table_never_wraps_an_id_and_is_plain_when_piped(stocked):
    output = stocked("list")
    assert "a-rather-long-job-id-that-must-not-be-wrapped-into-two-lines-1 " in output
    assert "\x1b" not in output


def test_pagination(stocked):
    seen, cursor = [], ()
    while True:
        page = stocked.json("list", "-n", "2", *cursor)
        seen += [job["id"] for job in page["jobs"]]
        if page["cursor"] is None:
            break
        cursor = ("--cursor", page["cursor"])
    assert len(seen) == len(set(seen)) == 5


def test_queues_can_be_paused(stocked):
    assert stocked("pause", "mail") == "Queue mail paused.\n"
    assert [queue["name"] for queue in stocked.json("queues") if queue["paused"]] == ["mail"]
    assert "paused" in stocked("queues")
    assert "queue 'mail' is paused" in stocked("explain", "mail")
    stocked("resume", "mail")
    assert not any(queue["paused"] for queue in stocked.json("queues"))


def test_the_column_updated_at_shows_when_a_job_was_updated_and_not_when_it_is_due(stocked):
    [row] = [line for line in stocked("list").splitlines() if " later " in line]
    job = stocked.json("show", "later")
    times = (datetime.fromisoformat(job[name]).astimezone() for name in ("updated_at", "run_at"))
    updated, due = (time.strftime("%Y-%m-%d %H:%M:%S") for time in times)
    assert job["updated_at"] == job["created_at"]
    assert updated in row
    assert due not in row


def test_queues_show_their_listeners(stocked):
    assert {queue["name"]: queue["listeners"] for queue in stocked.json("queues")} == {"default": 0, "mail": 0}
    assert " Listeners " in stocked("queues")


def test_explain_says_why(stocked):
    assert "is scheduled: it is scheduled for" in stocked("explain", "later")
    assert stocked("explain", "mail") == "Job mail is queued: no worker is alive.\n"
    assert stocked.json("explain", "mail")["reason"] == "no worker is alive"


def test_explain_says_why_the_jobs_of_a_queue_and_of_the_store_wait(stocked):
    first, *parts = stocked("explain").splitlines()
    assert first == ("5 jobs wait: 4 in 2 queues that no live worker serves (default, mail); 1 for their due time.")
    assert parts[0].endswith("start a worker for them: `holdfast worker start --queues default,mail`")
    assert stocked("explain", "--queue", "mail").splitlines()[0] == (
        "1 job waits: 1 in queue 'mail', which no live worker serves."
    )
    found = stocked.json("explain")
    assert (found["waiting"], [part["kind"] for part in found["parts"]]) == (5, ["no_worker", "scheduled"])
    assert "queue 'none' has no job and no worker" in stocked("explain", "--queue", "none", code=2)
    assert "ID or --queue, not both" in stocked("explain", "mail", "--queue", "mail", code=2)


def test_one_job_is_shown_cancelled_and_retried(stocked):
    assert "command    x" in stocked("show", "later")
    assert stocked("cancel", "later") == "Job later cancelled.\n"
    assert "it has ended and cannot be cancelled" in stocked("cancel", "later", code=1)
    assert stocked("retry", "later") == "Job later moved from 'cancelled' to 'queued'.\n"


def test_purge_deletes_the_selected_jobs(stocked):
    stocked("cancel", "mail")
    assert stocked("purge", "--state", "cancelled", "--dry-run") == "1 cancelled jobs match; none was deleted.\n"
    assert stocked("purge", "--state", "cancelled", "--yes") == "1 of 1 cancelled jobs deleted.\n"
    assert "running jobs cannot be purged" in stocked("purge", "--state", "running", "-y", code=2)


def test_config_is_checked_when_it_is_set(terminal):
    assert terminal("config", "set", "max_retries", "2") == "Config updated: max_retries = 2\n"
    assert terminal("config", "set", "backoff-base", "2") == "Config updated: backoff_base = 2\n"
    assert terminal("config", "get", "max_retries") == "2\n"
    assert "must be a whole number" in terminal("config", "set", "max_retries", "abc", code=2)
    assert "must be a finite number" in terminal("config", "set", "backoff_base", "x", code=2)
    assert "setting 'nope' cannot be kept in the store" in terminal("config", "get", "nope", code=2)
    assert "is not set" in terminal("config", "get", "lease", code=1)
    assert terminal.json("config", "list") == {"backoff_base": 2, "max_retries": 2}
    assert "System Configuration" in terminal("config", "list")
    assert terminal("config", "unset", "max_retries") == "Config removed: max_retries\n"
    assert "is not set" in terminal("config", "unset", "max_retries", code=1)
    assert terminal.json("config", "list") == {"backoff_base": 2}


UNKNOWN = [("show",), ("logs",), ("cancel",), ("retry",), ("explain",), ("dlq", "retry")]


def test_an_unknown_id_is_exit_code_1(terminal):
    for words in UNKNOWN:
        output = terminal(*words, "nope", code=1)
        why = "it was deleted, or removed after its retention, or the id is wrong"
        assert f"holdfast: there is no job 'nope' in this store: {why}; " in output
        assert "the store is sqlite:///holdfast.db (" in output


def test_an_unknown_token_is_exit_code_1(terminal):
    assert "there is no token 'nope'" in terminal("token", "revoke", "nope", code=1)


def test_a_wrong_command_is_exit_code_2(terminal):
    terminal("nonsense", code=2)
    terminal("list", "--limit", "0", code=2)
    assert "there is no store for the scheme 'foo'" in terminal("--url", "foo://x", "status", code=2)
    assert "there is no module 'nowhere'" in terminal("enqueue", "-A", "nowhere:app", "--task", "t", code=2)


def test_a_store_that_cannot_be_reached_is_exit_code_3(terminal):
    terminal("enqueue", '{"cmd": "true"}')
    file = terminal.folder / "holdfast.db"
    content = file.read_bytes()
    file.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
    output = terminal("status", code=3)
    assert "the file is damaged" in output
    assert output.count("\n") == 1


def test_the_url_is_accepted_before_and_after_the_command(terminal):
    terminal("--url", "sqlite:///other.db", "enqueue", '{"id": "x", "cmd": "true"}')
    assert terminal.json("list", "--url", "sqlite:///other.db")["jobs"][0]["id"] == "x"
    terminal.env["HOLDFAST_URL"] = "sqlite:///other.db"
    assert terminal.json("show", "x")["id"] == "x"


def test_dead_letters(terminal):
    assert terminal("dlq", "list").startswith("No jobs found with state: dead in sqlite:///holdfast.db (")
    terminal("enqueue", '{"id": "w", "cmd": "x"}')
    assert "this command retries only dead jobs; use `holdfast retry w`" in terminal("dlq", "retry", "w", code=1)
    assert "either one job ID or --all" in terminal("dlq", "retry", code=2)
    assert terminal("dlq", "retry", "--all") == "0 jobs moved from DLQ to 'queued'.\n"
    assert terminal("dlq", "purge", "--yes") == "0 of 0 dead jobs deleted.\n"
    assert terminal("dlq", "purge", "--dry-run") == "0 dead jobs match; none was deleted.\n"
    assert terminal("dlq", "retry", "--all", "--dry-run") == "0 dead jobs match; none was retried.\n"
    assert "--dry-run needs --all" in terminal("dlq", "retry", "w", "--dry-run", code=2)


def test_watch_prints_once_if_standard_output_is_no_terminal(stocked):
    for command in ("list", "status", "queues", "show later", "worker list"):
        output = stocked(*command.split(), "--watch")
        assert "standard output is not a terminal, so this was printed once" in output
    assert stocked("list", "--watch").count("Job ID") == 1


def test_watch_ends_when_nobody_reads_its_lines(stocked):
    command = [*HOLDFAST, "list", "--watch", "--json"]
    watching = subprocess.Popen(command, cwd=stocked.folder, env=stocked.env, stdout=subprocess.PIPE)
    json.loads(watching.stdout.readline())
    watching.stdout.close()
    watching.wait(60)


def test_watch_refreshes_until_it_is_stopped(stocked):
    watching = subprocess.Popen(
        [*HOLDFAST, "status", "--watch", "--json"], cwd=stocked.folder, env=stocked.env, stdout=subprocess.PIPE
    )
    lines = [json.loads(watching.stdout.readline()) for _ in range(2)]
    watching.terminate()
    watching.wait(10)
    watching.stdout.close()
    assert [line["counts"]["queued"] for line in lines] == [4, 4]


def test_every_command_has_help(terminal):
    commands = ["enqueue", "status", "list", "show", "logs", "cancel", "retry", "explain", "worker", "dlq", "config"]
    commands += ["queues", "pause", "resume", "purge", "migrate", "top", "bench", "demo"]
    output = terminal("--help")
    assert [name for name in commands if f" {name} " not in output] == []
    assert terminal("migrate").startswith("Applied version 1")
    assert terminal("migrate") == "The schema is up to date.\n"
