"""Shell jobs: exit codes, surroundings, limits, and nothing left behind."""

import json
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast import JobNotFound
from holdfast.worker.run.shell import HINT
from support.terminal import HOLDFAST, Terminal


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    """A terminal with a worker behind it that hears of cancellations by notifications alone."""
    terminal = Terminal(tmp_path_factory.mktemp("shell"))
    terminal.env["HOLDFAST_SECRET"] = "not for commands"
    terminal("config", "set", "backoff_base", "0")
    terminal("worker", "start", "--lease", "3600")
    yield terminal
    terminal("worker", "stop", "--now")
    left = terminal.process_table()
    terminal.close()
    assert left == {}


@pytest.fixture
def shop(opened):
    """After each test, only the worker and its supervisor are left."""
    yield opened
    assert [words for words in opened.process_table().values() if "holdfast.worker" not in words] == []


def enqueue(shop, id, command, **options):
    with suppress(JobNotFound):
        shop.store.delete(id)
    shop("enqueue", json.dumps({"id": id, "command": command, "max_retries": 1, **options}))


def ended(shop, id, limit=20):
    return shop.until(lambda: (job := shop.job(id))["state"] in ("succeeded", "dead", "cancelled") and job, limit)


def open_files(pid):
    found = []
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            found.append(each.readlink())
    return found


def sleeping(shop, word):
    return [words for words in shop.process_table().values() if words.startswith("sleep") and word in words]


def test_how_commands_end(shop):
    ends = {
        "fine": ("true", "succeeded", None, 0, None),
        "three": ("exit 3", "dead", "exit 3", 3, None),
        "missing": ("no-such-command", "dead", f"exit 127 (command not found){HINT}", 127, None),
        "forbidden": ("touch plain; ./plain", "dead", "exit 126 (the command cannot be executed)", 126, None),
        "killed": ("kill -9 $$", "dead", "killed by signal 9", None, 9),
        "syntax": ("if then", "dead", "exit 2", 2, None),
    }
    for id, (command, *_) in ends.items():
        enqueue(shop, id, command)
    for id, (_, state, error, code, number) in ends.items():
        job = ended(shop, id)
        assert (job["state"], job["error"]) == (state, error)
        said = job["meta"]["shell"]
        assert (said["exit_code"], said["signal"]) == (code, number)
        assert 0 <= said["duration"] < 10
    assert shop.job("fine")["result"]["exit_code"] == 0


def test_where_and_with_what_a_command_runs(shop):
    folder = shop.folder / "elsewhere"
    folder.mkdir()
    enqueue(shop, "x", 'pwd; echo "$WORD"; cat; echo "$HOLDFAST_JOB_ID $HOLDFAST_ATTEMPT [$HOLDFAST_SECRET]"',
            cwd=str(folder), env={"WORD": "ünder"}, stdin="from stdin\n")  # fmt: skip
    assert ended(shop, "x")["state"] == "succeeded"
    assert shop("logs", "x") == f"{folder}\nünder\nfrom stdin\nx 1 []\n"
    enqueue(shop, "nowhere", "true", cwd="/no/such/folder")
    assert "could not be started" in ended(shop, "nowhere")["error"]


def test_output_and_errors_come_in_order_and_by_attempt(shop):
    enqueue(shop, "x", "echo out $HOLDFAST_ATTEMPT; echo err >&2; exit 1", max_retries=2)
    assert ended(shop, "x")["attempt"] == 2
    assert shop("logs", "x") == "out 1\nerr\nout 2\nerr\n"
    assert shop("logs", "x", "--attempt", "2") == "out 2\nerr\n"
    lines = [json.loads(line) for line in shop("logs", "x", "--json").splitlines()]
    assert [(line["attempt"], line["text"]) for line in lines] == [(1, "out 1"), (1, "err"), (2, "out 2"), (2, "err")]
    assert {line["fence"] for line in lines} == {1, 2}


def test_logs_follow_a_job_live(shop):
    enqueue(shop, "x", "echo one; while [ ! -e go ]; do sleep 0.05; done; echo two")
    follower = subprocess.Popen(
        [*HOLDFAST, "logs", "-f", "x"], cwd=shop.folder, env=shop.env, stdout=subprocess.PIPE, text=True
    )
    assert follower.stdout.readline() == "one\n"
    assert shop.job("x")["state"] == "running"
    (shop.folder / "go").touch()
    assert follower.stdout.read() == "two\n"
    assert follower.wait(10) == 0
    follower.stdout.close()


def test_logs_follow_an_attempt_that_has_not_begun(shop):
    enqueue(shop, "x", "while [ ! -e on ]; do sleep 0.05; done; echo out $HOLDFAST_ATTEMPT; exit 1", max_retries=2)
    shop.until(lambda: shop.job("x")["state"] == "running")
    followers = [
        subprocess.Popen(
            [*HOLDFAST, "logs", "-f", "x", "--attempt", "2", *more],
            cwd=shop.folder, env=shop.env, stdout=subprocess.PIPE, text=True,
        )
        for more in ([], ["--json"])
    ]  # fmt: skip
    for follower in followers:  # they have begun to read
        shop.until(lambda pid=follower.pid: any("holdfast.db" in str(file) for file in open_files(pid)))
    (shop.folder / "on").touch()
    text, lines = [follower.communicate(timeout=60)[0] for follower in followers]
    assert text == "out 2\n"
    assert [json.loads(line)["text"] for line in lines.splitlines()] == ["out 2"]


def test_a_timeout_ends_the_whole_tree(shop):
    enqueue(shop, "x", "(setsid sleep 411 &); (setsid setsid sleep 412 &) ; env -i setsid sleep 413 & sleep 414",
            timeout=5)  # fmt: skip
    shop.until(lambda: len(sleeping(shop, "41")) >= 3)
    job = ended(shop, "x")
    assert job["error"] == "TimeoutError: ran longer than its timeout of 5 s"
    assert sleeping(shop, "41") == []
    assert no_process("sleep 413")


def test_a_command_that_prints_no_more_stalls_and_its_tree_ends(shop):
    enqueue(shop, "x", "echo begun; (setsid sleep 416 &); sleep 417", stall_timeout=1)
    job = ended(shop, "x")
    assert job["error"] == "TimeoutError: no progress, output or checkpoint for 1 s (stall_timeout)"
    assert sleeping(shop, "41") == []
    assert "begun" in shop("logs", "x")


def test_a_tree_that_ignores_sigterm_is_killed(shop):
    enqueue(shop, "x", "trap '' TERM; (trap '' TERM; setsid sleep 421) & sleep 422; sleep 423", timeout=0.5)
    assert ended(shop, "x")["meta"]["shell"]["signal"] == 9
    assert sleeping(shop, "42") == []


def test_a_fork_bomb_ends_with_its_job(shop):
    """One that would stop by itself, at 127 processes."""
    bomb = "b() { if [ $1 -gt 0 ]; then b $(($1 - 1)) & b $(($1 - 1)) & fi; exec setsid sleep 451; }; b 6 & sleep 452"
    enqueue(shop, "x", bomb)
    shop.until(lambda: len(sleeping(shop, "45")) >= 40)
    shop("cancel", "x")
    assert ended(shop, "x")["state"] == "cancelled"
    assert sleeping(shop, "45") == []
    assert no_process("sleep 451")


def test_a_cancellation_ends_the_whole_tree(shop):
    enqueue(shop, "x", "(setsid sleep 431 &); sleep 432")
    shop.until(lambda: len(sleeping(shop, "43")) == 2)
    shop("cancel", "x")
    assert ended(shop, "x")["state"] == "cancelled"
    assert sleeping(shop, "43") == []


def test_what_a_command_leaves_running_ends_with_it(shop):
    enqueue(shop, "x", "(setsid sleep 441 &); sleep 442 & echo ok")
    assert ended(shop, "x")["state"] == "succeeded"
    assert sleeping(shop, "44") == []
    assert shop("logs", "x") == "ok\n"


def test_a_gigabyte_of_output_never_blocks_and_is_kept_within_its_limit(shop):
    enqueue(shop, "x", "head -c 1000000000 /dev/zero; echo the end")
    job = ended(shop, "x", 60)
    assert job["state"] == "succeeded"
    note, *lines = [json.loads(line) for line in shop("logs", "x", "--json").splitlines()]
    assert "bytes of older output were dropped" in note["text"]
    assert 500_000 < sum(len(line["text"]) for line in lines) <= 2 * 1024**2
    assert lines[-1]["text"].endswith("the end")
    assert lines[-1]["position"] + len(lines[-1]["text"]) + 1 == 1_000_000_008


def no_process(words):
    said = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return words not in said.splitlines()
