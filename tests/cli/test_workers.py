"""`holdfast worker …`: start, stop, restart and handover of background processes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.worker.state import Running
from support.terminal import kill


def server_url(kind, request):
    """A server of this kind for one test; skips if it is not installed."""
    if kind == "redis":
        redis = pytest.importorskip("support.redis")
        if (binary := redis.valkey_binary() or redis.redis_binary()) is None:
            pytest.skip("there is no Redis here")
        server = redis.Server(binary, appendonly="yes").start()
        url = server.url()
    else:
        postgres = pytest.importorskip("support.postgres")
        if not postgres.installed():
            pytest.skip("there is no Postgres here")
        server = postgres.PostgresServer().start()
        url = server.url
    request.addfinalizer(server.remove)
    return url


@pytest.mark.parametrize(
    "store", ["sqlite", *(pytest.param(kind, marks=pytest.mark.extended) for kind in ("redis", "postgresql"))]
)
def test_queuectls_own_flow(terminal, store, request):
    if store != "sqlite":
        terminal.env["HOLDFAST_URL"] = server_url(store, request)
    terminal("config", "set", "max_retries", "2")
    terminal("config", "set", "backoff_base", "2")
    terminal("enqueue", '{"id": "ok", "command": "echo hi"}')
    terminal("enqueue", '{"id": "bad", "command": "exit 1"}')
    terminal("enqueue", '{"id": "long", "command": "sleep 3 && echo done"}')
    terminal("enqueue", '{"id": "unknown", "command": "no-such-command-here"}')
    assert "Started 2 workers" in terminal("worker", "start", "--count", "2")
    assert len(terminal.workers()) == 2
    terminal.until(lambda: terminal.states() == {"succeeded": 2, "dead": 2})
    for id, error in (("bad", "exit 1"), ("unknown", "exit 127 (command not found)")):
        job = terminal.job(id)
        assert (job["attempt"], job["error"].partition(";")[0]) == (2, error)
        first, second = job["history"]
        assert 1.9 < seconds(second["started_at"]) - seconds(first["ended_at"]) < 4
    assert terminal("logs", "long") == "done\n"
    assert "bad" in terminal("dlq", "list")
    assert terminal("dlq", "retry", "bad") == "Job bad moved from DLQ to 'queued'.\n"
    again = terminal.until(lambda: (job := terminal.job("bad"))["state"] == "dead" and job["reset_count"] == 1 and job)
    assert [(line["reset_count"], line["number"]) for line in again["history"]] == [(0, 1), (0, 2), (1, 1), (1, 2)]
    assert "Stopped." in terminal("worker", "stop")
    assert terminal.process_table() == {}
    assert "There are no live workers in " in terminal("worker", "list")
    assert "run on this machine.\n" in terminal("worker", "stop")


def test_workers_exit_when_their_database_is_deleted(terminal):
    front = terminal.start("worker", "start", "--foreground")
    terminal.until(terminal.workers)
    for file in sorted(terminal.folder.glob("holdfast.db*")):  # the database first
        file.unlink(missing_ok=True)  # a worker that has noticed it removes its log itself
    assert front.wait(90) == 3
    assert "holdfast.db was " in terminal.log()  # deleted; or replaced, where the supervisor opened it just now
    assert "while this process had it open; nothing was written" in terminal.log()


def seconds(text):
    from datetime import datetime

    return datetime.fromisoformat(text).timestamp()


def test_five_workers_and_two_hundred_jobs_each_run_once(terminal):
    lines = [json.dumps({"command": f"echo {n} >> out"}) for n in range(200)]
    terminal("worker", "start", "--count", "5", "--concurrency", "2")
    terminal("enqueue", '{"command": "echo once >> single"}')
    terminal("enqueue", "-", stdin="\n".join(lines))
    terminal.until(lambda: terminal.states() == {"succeeded": 201}, 60)
    done = (terminal.folder / "out").read_text().split()
    assert sorted(map(int, done)) == list(range(200))
    assert (terminal.folder / "single").read_text() == "once\n"


def test_workers_in_the_background_survive_their_shell(terminal):
    shell = subprocess.run(
        ["/bin/sh", "-c", f"{sys.executable} -m holdfast worker start; exit 0"],
        cwd=terminal.folder,
        env=terminal.env,
        start_new_session=True,
        check=True,
        capture_output=True,
    )
    assert b"Started 1 worker" in shell.stdout
    terminal("enqueue", '{"id": "x", "command": "echo hi"}')
    terminal.until(lambda: terminal.job("x")["state"] == "succeeded")
    [supervisor] = terminal.supervisors()
    files = list((terminal.folder / "state" / "holdfast").iterdir())
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    assert (terminal.folder / "state" / "holdfast").stat().st_mode & 0o777 == 0o700
    terminal("worker", "stop")
    assert supervisor not in terminal.process_table()


def test_ctrl_c_stops_gracefully_with_exit_code_0(terminal):
    terminal("enqueue", '{"id": "x", "command": "echo begun; sleep 1.5; echo done"}')
    front = terminal.start("worker", "start", "--foreground", "--count", "2", "--grace", "60")
    terminal.until(lambda: terminal.printed("x") == "begun\n")
    # A terminal signals the whole foreground process group.
    os.killpg(front.pid, signal.SIGINT)
    assert front.wait(90) == 0
    job = terminal.job("x")
    assert (job["state"], job["attempt"], len(job["history"])) == ("succeeded", 1, 1)
    assert terminal.process_table() == {}


def test_a_stop_during_a_start_has_exit_code_0(terminal):
    (terminal.folder / "slow.py").write_text(
        "import sys, time, pathlib\n"
        "from holdfast import Holdfast\n"
        "app = Holdfast('sqlite:///q.db')\n"
        "if sys.argv[0].endswith('member.py'):\n"
        "    pathlib.Path('starting').touch()\n"
        "    time.sleep(60)\n"
    )
    front = terminal.start("worker", "start", "-A", "slow:app", "--foreground")
    terminal.until((terminal.folder / "starting").exists)
    os.killpg(front.pid, signal.SIGINT)
    assert front.wait(90) == 0, terminal.log()
    assert terminal.process_table() == {}


def test_a_stop_after_the_grace_period_releases_jobs_uncharged(terminal):
    terminal("enqueue", '{"id": "x", "command": "trap \\"\\" TERM; echo begun; sleep 60"}')
    terminal("worker", "start", "--grace", "0.2")
    terminal.until(lambda: terminal.printed("x") == "begun\n")
    terminal("worker", "stop")
    job = terminal.job("x")
    assert (job["state"], job["attempt"], job["history"][0]["outcome"]) == ("queued", 0, "released")
    assert terminal.process_table() == {}


def test_stop_does_not_signal_foreign_processes(terminal):
    terminal("worker", "start")
    terminal("worker", "stop")
    other = subprocess.Popen(["sleep", "60"])
    try:
        terminal("worker", "start")
        [file] = (terminal.folder / "state" / "holdfast").glob("*.json")
        entry = json.loads(file.read_text())
        ours = Running(**entry)
        forged = {**entry, "pid": other.pid}
        file.with_name(f"{entry['store']}-{other.pid}.json").write_text(json.dumps(forged))
        assert ours.alive
        assert not Running(**forged).alive
        terminal("worker", "stop")
        assert other.poll() is None
        assert not ours.alive
    finally:
        other.kill()
        other.wait()


def test_a_dead_worker_is_replaced_and_its_job_restarts(terminal):
    terminal("worker", "start", "--lease", "60")
    terminal("enqueue", '{"id": "x", "command": "echo run; sleep 2"}')
    terminal.until(lambda: terminal.printed("x") == "run\n")
    [worker] = terminal.workers()
    kill(worker["pid"])
    job = terminal.until(lambda: (job := terminal.job("x"))["attempt"] == 2 and job["started_at"] and job)
    lost = job["history"][0]
    assert lost["outcome"] == "lost"
    assert seconds(job["started_at"]) - seconds(lost["ended_at"]) < 10
    terminal.until(lambda: terminal.job("x")["state"] == "succeeded")
    [other] = terminal.workers()
    assert other["pid"] != worker["pid"]
    terminal("worker", "stop")


def test_drain_exits_when_no_job_is_left(terminal):
    terminal("config", "set", "backoff_base", "1")
    terminal("enqueue", '{"id": "a", "command": "sleep 0.3"}')
    terminal("enqueue", '{"id": "b", "command": "exit 1", "max_retries": 2}')
    terminal("enqueue", '{"id": "later", "command": "x", "delay": 999}')
    front = terminal.start("worker", "start", "--foreground", "--drain", "--count", "2")
    assert front.wait(90) == 0
    assert terminal.states() == {"succeeded": 1, "dead": 1, "scheduled": 1}


@pytest.mark.extended
def test_a_worker_restarts_after_max_jobs(terminal):
    lines = [json.dumps({"command": f"echo $PPID >> parents; echo {n}"}) for n in range(6)]
    terminal("enqueue", "-", stdin="\n".join(lines))
    terminal("worker", "start", "--max-jobs", "2", "--concurrency", "1")
    terminal.until(lambda: terminal.states() == {"succeeded": 6})
    workers = {one.worker for one in terminal.store.jobs().jobs}
    assert len(workers) == 3
    terminal("worker", "stop")


@pytest.mark.extended
def test_heavier_queues_come_first_and_none_starves(terminal):
    lines = [json.dumps({"queue": queue, "command": f"echo {queue} >> order"}) for queue in ("mail", "default")
             for _ in range(12)]  # fmt: skip
    terminal("enqueue", "-", stdin="\n".join(lines))
    front = terminal.start("worker", "start", "--foreground", "--drain", "--queues", "mail:3,default:1",
                           "--concurrency", "1")  # fmt: skip
    assert front.wait(90) == 0
    order = (terminal.folder / "order").read_text().split()
    assert len(order) == 24
    assert order[:8].count("mail") == 6
    assert "the weight must be from 1 to 1000" in terminal("worker", "start", "--queues", "mail:0", code=2)


def test_a_handover_lets_a_long_job_finish_under_the_old_worker(terminal):
    terminal("worker", "start")
    terminal("enqueue", '{"id": "long", "command": "echo begun; while [ ! -e go ]; do sleep 0.1; done"}')
    terminal.until(lambda: terminal.printed("long") == "begun\n")
    [old] = terminal.supervisors()
    terminal("worker", "start", "--handover", "--grace", "1")
    terminal("enqueue", '{"id": "next", "command": "echo hi"}')
    terminal.until(lambda: terminal.job("next")["state"] == "succeeded")
    assert terminal.job("next")["worker"] != terminal.job("long")["worker"]
    assert old in terminal.process_table()
    (terminal.folder / "go").touch()
    terminal.until(lambda: old not in terminal.process_table())
    job = terminal.job("long")
    assert (job["state"], job["attempt"]) == ("succeeded", 1)
    assert len(terminal.workers()) == 1
    terminal("worker", "stop")


@pytest.mark.extended
def test_reload_restarts_workers_when_a_file_changes(terminal):
    module = terminal.folder / "shop.py"
    program = "from holdfast import Holdfast\napp = Holdfast()\n@app.task\ndef version() -> int:\n    return {}\n"
    module.write_text(program.format(1))
    terminal("worker", "start", "-A", "shop:app", "--reload")
    terminal("enqueue", "--id", "one", "--task", "version")
    terminal.until(lambda: terminal.job("one")["result"] == 1)
    [before] = terminal.workers()
    module.write_text(program.format(2) + "# changed\n")
    terminal.until(lambda: [one["pid"] for one in terminal.workers()] not in ([], [before["pid"]]))
    terminal("enqueue", "--id", "two", "--task", "version")
    terminal.until(lambda: terminal.job("two")["result"] == 2)
    terminal("worker", "stop")


def test_shell_jobs_need_the_shell_option(terminal):
    (terminal.folder / "shop.py").write_text("from holdfast import Holdfast\napp = Holdfast()\n")
    terminal("enqueue", '{"id": "x", "command": "touch ran"}')
    terminal("config", "set", "refusal-timeout", "0")
    terminal("worker", "start", "-A", "shop:app")
    terminal.until(lambda: terminal.job("x")["state"] == "dead")
    assert "unknown task 'shell'" in terminal.job("x")["error"]
    assert "has task 'shell' registered" not in terminal("explain", "x")
    terminal("worker", "stop")
    terminal("worker", "start", "-A", "shop:app", "--shell")
    terminal("dlq", "retry", "x")
    terminal.until(lambda: terminal.job("x")["state"] == "succeeded")
    assert Path(terminal.folder / "ran").exists()
    terminal("worker", "stop")


def test_shell_jobs_get_the_variables_of_pass_env(terminal):
    terminal.env |= {"PGPASSWORD": "hunter2", "AWS_REGION": "eu", "AWS_PROFILE": "shop"}
    marks = {"HOLDFAST_PASS_ENV": "TERMINAL_TEST,PGPASSWORD"}
    flags = ("--pass-env", "AWS_*", "--pass-env", "TERMINAL_TEST")
    command = 'echo "[$PGPASSWORD] [$AWS_REGION] [$AWS_PROFILE] [$HOME]"'
    home = terminal.env["HOME"]
    for id, env, options, printed in (
        ("none", {}, (), f"[] [] [] [{home}]\n"),
        ("setting", marks, (), f"[hunter2] [] [] [{home}]\n"),
        ("flag", marks, flags, f"[] [eu] [shop] [{home}]\n"),
    ):
        terminal("enqueue", json.dumps({"id": id, "command": command}))
        terminal.env |= env
        terminal("worker", "start", "--foreground", "--drain", *options)
        assert terminal.printed(id) == printed
    output = terminal("worker", "start", "--pass-env", "PGPASSWORD=hunter2", code=2)
    assert "names of environment variables" in output
    assert "hunter2" not in output


@pytest.mark.parametrize(
    ("fault", "code", "message"),
    [
        ("os._exit(3)", 1, "the workers did not start"),
        ("raise RuntimeError('no')", 2, "module 'shop' cannot be imported: RuntimeError: no"),
    ],
    ids=["dies", "refuses"],
)
def test_workers_that_cannot_start_are_reported(terminal, fault, code, message):
    (terminal.folder / "shop.py").write_text(
        "import os, sys\nfrom holdfast import Holdfast\napp = Holdfast()\n"
        f"if sys.argv[0].endswith('member.py'): {fault}\n"
    )
    assert message in terminal("worker", "start", "-A", "shop:app", code=code)
    terminal.until(lambda: terminal.process_table() == {})  # the supervisor ends after its report


ONE_AFTER_ANOTHER = """
import itertools, os, pathlib, signal, sys, time
from holdfast import Holdfast
app = Holdfast()

@app.task
def poison() -> None:
    os.kill(os.getpid(), signal.SIGKILL)

@app.task
def harmless() -> str:
    return 'ran'

def place() -> int:
    for number in itertools.count(1):
        try:
            pathlib.Path(f'worker-{number}').touch(exist_ok=False)
            return number
        except FileExistsError:
            pass

if sys.argv[0].endswith('member.py') and place() == 2:
    SECOND
"""


@pytest.mark.extended
def test_a_job_that_kills_the_first_worker_while_others_start_does_not_stop_the_start(terminal):
    until_the_first_is_replaced = "while not pathlib.Path('worker-3').exists(): time.sleep(0.01)"
    (terminal.folder / "shop.py").write_text(ONE_AFTER_ANOTHER.replace("SECOND", until_the_first_is_replaced))
    terminal("enqueue", "--id", "poison", "--task", "poison")
    terminal("enqueue", "--id", "harmless", "--task", "harmless")
    assert "Started 2 workers" in terminal("worker", "start", "-A", "shop:app", "--count", "2", "--lease", "60")
    terminal.until(lambda: terminal.job("harmless")["state"] == "succeeded")
    terminal.until(lambda: terminal.job("poison")["state"] == "dead")
    terminal.until(lambda: len(terminal.workers()) == 2)
    terminal("worker", "stop")


def test_one_worker_of_two_that_cannot_start_stops_the_start(terminal):
    (terminal.folder / "shop.py").write_text(ONE_AFTER_ANOTHER.replace("SECOND", "os._exit(3)"))
    output = terminal("worker", "start", "-A", "shop:app", "--count", "2", code=1)
    assert "the workers did not start" in output
    terminal.until(lambda: terminal.process_table() == {})


@pytest.mark.extended
def test_explain_reports_busy_workers_and_queues_without_workers(terminal):
    terminal("worker", "start", "--concurrency", "1", "--lease", "2")
    terminal("enqueue", '{"id": "a", "command": "trap \'\' TERM; sleep 30"}')
    terminal.until(lambda: terminal.job("a")["state"] == "running")
    terminal("enqueue", '{"id": "b", "command": "x"}')
    terminal("enqueue", '{"id": "c", "command": "x", "queue": "mail"}')
    terminal("enqueue", "--id", "d", "--task", "nobody_knows")
    assert "all 1 slots of the 1 workers of queue 'default' are busy since" in terminal("explain", "b")
    assert "no live worker serves queue 'mail'" in terminal("explain", "c")
    assert "has task 'nobody_knows' registered" in terminal("explain", "d")
    running = terminal("explain", "a")
    assert "runs it since" in running
    assert "its lease is valid for another" in running
    assert terminal("cancel", "a") == "Job a was asked to stop.\n"
    terminal.until(lambda: terminal.job("a")["state"] == "cancelled", 25)
    terminal("worker", "stop")
