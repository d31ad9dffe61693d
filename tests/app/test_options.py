"""The options of a job are declared once. What a surface leaves out is listed here, with its reason."""

import inspect
import re
from pathlib import Path

import pytest

from holdfast import Job, Schedule
from holdfast.cli import spec
from holdfast.cli.enqueue import enqueue
from holdfast.cli.submit import FLAGS, NO_OPTIONS
from holdfast.client.enqueue import FOLLOW_UP
from holdfast.core.cron import Rule
from holdfast.http import shapes
from holdfast.http.schedules import NewSchedule, ScheduleOut
from holdfast.tasks.options import JOB_OPTIONS, OPTION_OF, PAIRS, TASK_OPTIONS, JobOptions, Options

DOCS = Path(__file__).parents[2] / "docs"
FLOW = "the task of a schedule can enqueue a job with it"
ONE_JOB = "it belongs to one job, and a schedule makes many"
OBJECT = "it is an object of a Python program"
LEFT_OUT = {
    "POST /v1/jobs": {
        "id": "the server makes it; a client names its job by the key",
        "key": "it is the header Idempotency-Key",
        "meta": "it is for the program that enqueues; a client has tags",
        "retry": "the task or the settings say it",
        "limit": OBJECT,
        "connection": OBJECT,
    },
    "POST /v1/jobs/batch": {
        "id": "as in POST /v1/jobs",
        "meta": "as in POST /v1/jobs",
        "retry": "as in POST /v1/jobs",
        "limit": OBJECT,
        "connection": OBJECT,
        "replace": "a batch is stored in one round trip, and a replacement looks first",
        "debounce": "as replace",
        "debounce_max": "as replace",
    },
    "PUT /v1/schedules": {
        **dict.fromkeys(("at", "delay", "key", "id", "meta", "unique", "replace", "debounce", "debounce_max"), ONE_JOB),
        "limit": "it is the task's",
        "connection": OBJECT,
        "on_success": FLOW,
        "on_dead": FLOW,
    },
    "a schedule in the store": {
        **dict.fromkeys(("at", "delay", "key", "id", "meta", "unique", "replace", "debounce", "debounce_max"), ONE_JOB),
        "limit": "it is the task's",
        "connection": OBJECT,
        "on_success": FLOW,
        "on_dead": FLOW,
    },
    "a follow-up": {
        **dict.fromkeys(("key", "id", "meta", "unique"), "they identify it, and its job says what it follows"),
        **dict.fromkeys(("replace", "debounce", "debounce_max"), "they need a key"),
        "at": "nobody knows when its job ends",
        "connection": OBJECT,
        "on_success": "a flow can have more jobs",
        "on_dead": "a flow can have more jobs",
    },
    "holdfast enqueue JSON": spec.NOT_IN_JSON,
    "holdfast enqueue --flags": {
        "meta": "it is an object: it can be said in JSON",
        "retry": "it can be said in JSON, as backoff_base",
        "limit": OBJECT,
        "connection": OBJECT,
    },
    "docs/guides/options.md": {},
    "docs/reference/python.md": {},
}


def fields(kind):
    return {shapes.OPTIONS.get(name, name) for name in kind.__struct_fields__}


def flags():
    names = {FLAGS.get(name, name) for name in inspect.signature(enqueue).parameters if name not in NO_OPTIONS}
    return {spec.ALIASES.get(name, name) for name in names}


def in_json():
    python = {word: option for option, word in spec.SPELLED.items()}
    return {python.get(name, name) for name in spec.KNOWN}


def described():
    rows = re.findall(r"^- (`.*?): ", (DOCS / "guides" / "options.md").read_text(encoding="utf-8"), re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


def referred(call):
    page = (DOCS / "reference" / "python.md").read_text(encoding="utf-8")
    return {name for line in re.findall(rf"`{call}\(([^)`]*=[^)`]*)\)`", page) for name in re.findall(r"(\w+)=", line)}


SURFACES = {
    "POST /v1/jobs": lambda: fields(shapes.NewJob),
    "POST /v1/jobs/batch": lambda: fields(shapes.NewJobInBatch),
    "PUT /v1/schedules": lambda: fields(NewSchedule),
    "a schedule in the store": lambda: {*Schedule.__struct_fields__},
    "a follow-up": lambda: FOLLOW_UP,
    "holdfast enqueue JSON": in_json,
    "holdfast enqueue --flags": flags,
    "docs/guides/options.md": described,
    "docs/reference/python.md": lambda: referred(r"task\.using"),
}


@pytest.mark.parametrize("surface", SURFACES)
def test_every_option_is_on_every_surface_that_does_not_say_why_not(surface):
    assert {*JOB_OPTIONS} - SURFACES[surface]() == {*LEFT_OUT[surface]}


def test_the_reference_names_every_option_of_a_task():
    assert referred(r"@app\.task") == {*TASK_OPTIONS}


def test_every_option_has_a_checker_and_every_checked_field_an_option():
    assert all(callable(kind.__metadata__[0]) for kind in JobOptions.__annotations__.values())
    written = {field for name in JOB_OPTIONS for field in PAIRS.get(name, (name,))}
    assert written == {*Options.__struct_fields__}
    assert {OPTION_OF.get(field, field) for field in Options.__struct_fields__} == {*JOB_OPTIONS} - {"debounce"}


def test_a_job_over_http_has_every_field_of_a_job():
    assert {shapes.SPELLED.get(name, name) for name in shapes.JobOut.__struct_fields__} == {*Job.__struct_fields__}


def test_a_schedule_over_http_has_all_that_is_shown_of_one():
    shown = Schedule("s", "send", Rule(every=60.0)).shown()
    named = {"task": "type", "expires": "expires_in", "deadline": "deadline_in"}
    assert {named.get(name, name) for name in shown} == {*ScheduleOut.__struct_fields__}


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("prioritty", "did you mean 'priority'?"),
        ("max_attempt", "did you mean 'max_attempts'?"),
        ("colour", "known options: queue, priority, "),
        ("window", "known options: queue, priority, "),
    ],
)
@pytest.mark.parametrize("value", [1, None])
async def test_an_unknown_option_is_refused_before_anything_is_stored(app, name, hint, value):
    @app.task
    async def add(a: int) -> int:
        return a

    given = {name: value}
    said = re.escape(f"unknown option {name!r}; {hint}")
    with pytest.raises(TypeError, match=said):
        add.using(**given)
    with pytest.raises(TypeError, match=said):
        add.sync.using(**given)
    with pytest.raises(TypeError, match=said):
        app.task(**given)(add.fn)
    with pytest.raises(TypeError, match=said):
        await app.submit("add", b"{}", **given)
    with pytest.raises(TypeError, match=said):
        app.sync.submit("add", b"{}", **given)
    assert (await app.jobs()).jobs == []


@pytest.mark.parametrize("name", ["result_codec", "built_in", "delay", "key", "meta"])
def test_a_task_declares_nothing_that_is_not_a_tasks_to_say(app, name):
    with pytest.raises(TypeError, match=f"unknown option '{name}'"):
        app.task(**{name: None})(test_the_reference_names_every_option_of_a_task)


def test_an_option_of_none_is_left_as_it_was(app):
    @app.task(queue="mail", unique="until_end", expires=60)
    async def send() -> None: ...

    assert send.using(**dict.fromkeys(JOB_OPTIONS)).options == send.options
    assert (send.options.queue, send.options.unique, send.options.expires_in) == ("mail", "until_end", 60)
