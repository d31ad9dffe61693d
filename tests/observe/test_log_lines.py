"""The log of worker processes: one line per event, in order, without payloads and secrets."""

import json
import logging
import re
import subprocess
import sys
import urllib.request

import pytest

from holdfast.core.job import NewJob
from holdfast.observe import logs
from holdfast.observe.events import Events, JobEvent
from support.eventually import eventually
from support.http import served

APP = """
from holdfast import Context, Holdfast

app = Holdfast()


@app.task(max_attempts=2, retry=lambda error, attempt: 0)
def greet(ctx: Context, password: str) -> str:
    ctx.log.warning("attempt %d", ctx.attempt)
    if ctx.attempt == 1:
        raise RuntimeError("not yet")
    return password


@app.task(max_attempts=1)
def never(password: str) -> None:
    raise RuntimeError("no")
"""
JOB = NewJob("1f", "noop", "default", b"{}")
SECRET = "correct-horse-battery"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


@pytest.fixture
def logged(terminal):
    """Runs jobs of APP in a real worker; returns its log lines after all have ended."""
    (terminal.folder / "shop.py").write_text(APP)

    def run(*jobs, **env):
        terminal.env |= env
        for id, task in jobs:
            terminal.store.submit(
                task,
                b'{"password": "%s"}' % SECRET.encode(),
                json=True,
                id=id,
                max_attempts=2 if task == "greet" else 1,
                meta={"traceparent": PARENT},
            )
        terminal.start("worker", "start", "-A", "shop:app", "--foreground", "--drain")
        assert terminal.started[-1].wait(90) == 0
        return terminal.log()

    return run


def lines_of(log, id):
    lines = [json.loads(line) for line in log.splitlines()]
    return [line for line in lines if line.get("job_id") == id]


def test_the_events_of_a_job_are_logged_in_order_with_its_ids(logged):
    log = logged(("twice", "greet"), ("dead", "never"))
    life = lines_of(log, "twice")
    assert [line["event"] for line in life if line.get("logger") is None] == ["job_failed", "job_succeeded"]
    assert [line["event"] for line in lines_of(log, "dead")] == ["job_dead"]
    for line in life:
        assert line["job_type"] == "greet"
        assert line["queue"] == "default"
        assert line["attempt"] in (1, 2)
        assert line["worker_id"]
        assert line["trace_id"] == TRACE
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", line["timestamp"])
    levels = {line["event"]: line["level"] for line in life}
    assert (levels["job_failed"], levels["job_succeeded"]) == ("warning", "info")


def test_debug_shows_claims_and_starts_too(logged):
    log = logged(("dead", "never"), HOLDFAST_LOG_LEVEL="DEBUG")
    assert [line["event"] for line in lines_of(log, "dead")] == ["lease_acquired", "handler_start", "job_dead"]


def test_log_lines_of_a_task_have_the_same_ids(logged):
    log = logged(("twice", "greet"))
    own = [line for line in lines_of(log, "twice") if line.get("logger") == "holdfast.job"]
    assert [line["event"] for line in own] == ["attempt 1", "attempt 2"]


def test_no_log_line_contains_a_payload_or_a_result(logged):
    log = logged(("twice", "greet"), ("dead", "never"), HOLDFAST_LOG_LEVEL="DEBUG")
    assert "job_dead" in log
    assert SECRET not in log


def test_a_password_in_the_stores_url_is_not_logged(terminal):
    output = terminal("worker", "start", "--foreground", "--url", f"redis://user:{SECRET}@127.0.0.1:1/0", code=3)
    assert SECRET not in output


def test_the_level_is_a_setting(logged):
    log = logged(("twice", "greet"), HOLDFAST_LOG_LEVEL="WARNING")
    assert [line["event"] for line in lines_of(log, "twice") if line.get("logger") is None] == ["job_failed"]


def test_pretty_lines_are_text(logged):
    log = logged(("twice", "greet"), HOLDFAST_LOG_FORMAT="pretty")
    assert "job_failed" in log
    assert "error='RuntimeError: not yet'" in log
    assert not log.lstrip().startswith("{")


def test_the_creation_is_logged_where_the_job_is_enqueued(terminal):
    code = """
import logging, sys
from holdfast import Holdfast
from holdfast.observe.logs import set_up
set_up("INFO", "json")
Holdfast("memory://").sync.enqueue("noop")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    (line,) = [json.loads(line) for line in done.stderr.splitlines()]
    assert line["event"] == "job_created"
    assert line["job_type"] == "noop"


def test_a_server_logs_what_it_stores_with_the_trace_of_the_request(tmp_path):
    with served(tmp_path, f"sqlite:///{tmp_path}/jobs.db", HOLDFAST_LOG_LEVEL="DEBUG") as server:
        request = urllib.request.Request(
            f"{server.address()}/v1/jobs",
            json.dumps({"type": "noop", "payload": {"password": SECRET}}).encode(),
            {"Idempotency-Key": "k", "Content-Type": "application/json", "traceparent": PARENT},
        )
        with urllib.request.urlopen(request, timeout=20) as answer:
            id = json.load(answer)["id"]
        assert server.stop() == 0
    lines = [json.loads(line) for line in server.output().splitlines() if line.startswith("{")]
    (created,) = [line for line in lines if line.get("job_id") == id]
    assert (created["event"], created["trace_id"], created["level"]) == ("job_created", TRACE, "info")
    (asked,) = [line for line in lines if line["event"] == "http_request"]
    assert (asked["method"], asked["path_template"], asked["status_code"]) == ("POST", "/v1/jobs", 201)
    assert SECRET not in server.output()


@pytest.fixture
def quiet_again():
    """Restores the logging configuration."""
    root, flags = logging.getLogger(), (logging.logThreads, logging.logProcesses, logging.logMultiprocessing)
    before = root.handlers[:], root.level
    yield
    root.handlers[:], level = before
    root.setLevel(level)
    logging.logThreads, logging.logProcesses, logging.logMultiprocessing = flags


def test_tracebacks_and_unknown_objects_are_logged_on_one_line(quiet_again, capsys):
    logs.set_up("INFO", "json")
    broken = ValueError("first\nsecond")
    logging.getLogger("shop").error("it broke", exc_info=broken, extra={"fields": {"thing": object}})
    (line,) = capsys.readouterr().err.splitlines()
    output = json.loads(line)
    assert output["event"] == "it broke"
    assert output["logger"] == "shop"
    assert output["traceback"].endswith("second")
    assert output["thing"] == "<class 'object'>"


@pytest.mark.parametrize("program", ["import holdfast", "import holdfast.cli.main", "from holdfast import Worker"])
def test_libraries_of_other_commands_are_not_imported(program):
    code = (
        f"import sys; {program}; print([name for name in ('rich', 'opentelemetry', 'prometheus_client', 'aiohttp') "
        "if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def lines_written(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return [json.loads(line)["event"] for line in done.stderr.splitlines() if line.startswith("{")]


PROGRAM = """
import logging, os, sys
from holdfast.core.job import NewJob
from holdfast.observe import logs
from holdfast.observe.events import Events, JobEvent
logs.LINE_AGE = {age}
logs.set_up("INFO", "json")
log = logging.getLogger("holdfast")
"""


async def test_a_line_is_written_later_without_another_one(quiet_again, capsys):
    logs.set_up("INFO", "json")
    log, written = logging.getLogger("holdfast"), []

    def both() -> bool:
        written.extend(json.loads(line)["event"] for line in capsys.readouterr().err.splitlines())
        return written == ["first", "second"]

    for event in ("first", "second"):
        log.info(event)
    await eventually(both)


def test_lines_are_written_together(quiet_again, capsys, monkeypatch):
    monkeypatch.setattr(logs, "LINE_AGE", 3600)
    logs.set_up("INFO", "json")
    for number in range(logs.BATCH):
        assert capsys.readouterr().err == "", "not one by one"
        logging.getLogger("holdfast").info("line %d", number)
    assert len(capsys.readouterr().err.splitlines()) == logs.BATCH


def test_a_warning_is_written_at_once_after_the_lines_before_it(quiet_again, capsys, monkeypatch):
    monkeypatch.setattr(logs, "LINE_AGE", 3600)
    logs.set_up("INFO", "json")
    log = logging.getLogger("holdfast")
    log.info("first")
    assert capsys.readouterr().err == ""
    log.warning("second")
    log.info("third")
    assert [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()] == ["first", "second"]
    logs.flush()
    assert "third" in capsys.readouterr().err


@pytest.mark.parametrize(
    "end",
    [
        "",
        "sys.exit(3)",
        "raise RuntimeError",
        "logs.flush(); os._exit(0)",
        "import atexit; atexit.register(log.info, 'last')",
    ],
)
def test_all_lines_are_written_when_the_process_ends(end):
    written = lines_written(PROGRAM.format(age=3600) + f"log.info('first'); log.info('second'); {end}")
    assert written == ["first", "second", "last"][: 3 if "last" in end else 2]


def test_lines_are_written_once_if_the_process_forks():
    written = lines_written(
        PROGRAM.format(age=3600)
        + """
log.info("before")
child = os.fork()
log.info("child" if child == 0 else "parent")
if child:
    os.waitpid(child, 0)
"""
    )
    assert written == ["before", "child", "parent"]


def wanting(root, logger, handler, kept, monkeypatch):
    """By name, how a program gets the log records of events."""
    filtering = lambda record: kept.append(record) or True  # noqa: E731
    extra = logging.Handler()
    extra.emit = kept.append
    call_handlers = logging.Logger.callHandlers

    def patched(self, record):
        kept.append(record)
        call_handlers(self, record)

    return {
        "a handler of the root": lambda: root.addHandler(extra),
        "a handler of the logger": lambda: monkeypatch.setattr(logger, "handlers", [extra]),
        "a filter of the logger": lambda: monkeypatch.setattr(logger, "filters", [filtering]),
        "a filter of the handler": lambda: handler.addFilter(filtering),
        "instrumentation": lambda: monkeypatch.setattr(logging.Logger, "callHandlers", patched),
    }


@pytest.mark.parametrize(
    "way",
    [
        "a handler of the root",
        "a handler of the logger",
        "a filter of the logger",
        "a filter of the handler",
        "instrumentation",
    ],
)
def test_an_event_is_a_log_record_for_everything_that_wants_one(quiet_again, capsys, monkeypatch, way):
    logs.set_up("INFO", "json")
    logger, (handler,), kept = logging.getLogger("holdfast"), logging.root.handlers, []
    wanting(logging.root, logger, handler, kept, monkeypatch)[way]()
    Events().created(JOB)
    logs.flush()
    (record,) = kept
    assert (record.event, record.fields["job_id"], record.levelname) == ("job_created", JOB.id, "INFO")
    assert json.loads(capsys.readouterr().err)["job_id"] == JOB.id


def test_an_event_is_written_in_the_format_that_the_program_has_set(quiet_again, capsys):
    logs.set_up("INFO", "json")
    logging.root.handlers[0].setFormatter(logging.Formatter("mine: %(event)s"))
    Events().created(JOB)
    logs.flush()
    assert capsys.readouterr().err == "mine: job_created\n"


def test_no_line_is_written_where_the_program_keeps_them_from_the_root(quiet_again, capsys, monkeypatch):
    logs.set_up("INFO", "json")
    monkeypatch.setattr(logging.getLogger("holdfast"), "propagate", False)
    Events().created(JOB)
    logs.flush()
    assert capsys.readouterr().err == ""


def test_the_line_of_an_event_is_that_of_its_log_record(quiet_again, capsys):
    logs.set_up("INFO", "json")
    events = Events()
    dead = JobEvent("job_dead", "1", "greet", "default", attempt=2, error="no")
    for _ in range(2):
        events.emit(dead, "Traceback …\nno\n")
        logging.root.addHandler(logging.NullHandler())  # from now on, there are records
    first, second = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert first.pop("timestamp").endswith("Z")
    assert second.pop("timestamp").endswith("Z")
    assert first == second
    assert (first["level"], first["traceback"]) == ("error", "Traceback …\nno")


def test_an_event_that_cannot_be_encoded_does_not_stop_the_program(quiet_again, capsys):
    logs.set_up("INFO", "json")
    Events().emit(JobEvent("job_succeeded", "\udcff", "greet", "default"))
    Events().created(JOB)
    logs.flush()
    assert "Logging error" in (err := capsys.readouterr().err)
    assert JOB.id in err


def test_instrumentation_that_came_first_gets_the_records():
    code = """
import logging
kept = []
before = logging.Logger.callHandlers
logging.Logger.callHandlers = lambda self, record: kept.append(record) or before(self, record)
from holdfast import Holdfast
from holdfast.observe.logs import set_up
set_up("INFO", "json")
Holdfast("memory://").sync.enqueue("noop")
print([record.event for record in kept])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['job_created']"
