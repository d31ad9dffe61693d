"""Schedules over HTTP: create, read, change, pause, run and delete, with the required role."""

from __future__ import annotations

import pytest

from holdfast.app import parts_of
from holdfast.http import tokens
from support.http import serving

PATH = "/v1/schedules/nightly"
BODY = {"type": "report", "payload": {"day": "monday"}, "cron": "0 3 * * *", "tz": "Europe/Oslo"}
FIELDS = {
    "name", "type", "payload", "queue", "priority", "max_attempts", "timeout", "retry", "tags", "expires_in", "cron",
    "every", "tz", "words", "catch_up", "jitter", "overlap", "start", "end", "paused", "in_code", "last_run",
    "next_run", "last_job", "limits", "error", "deadline_in", "stall_timeout",
}  # fmt: skip


async def test_a_schedule_is_created_listed_and_changed(http, app):
    assert (await http("GET", "/v1/schedules")).json == {"schedules": []}
    made = await http("PUT", PATH, {**BODY, "queue": "reports", "priority": -5, "tags": ["cron"], "timeout": 60})
    assert made.status == 200
    assert set(made.json) == FIELDS
    assert (made.json["type"], made.json["queue"], made.json["cron"]) == ("report", "reports", "0 3 * * *")
    assert made.json["words"] == "At 03:00 every day (Europe/Oslo)"
    assert made.json["next_run"].endswith("Z")
    assert made.json["last_run"] is made.json["last_job"] is None
    assert (await http("GET", PATH)).json == made.json
    changed = (await http("PUT", PATH, {"type": "report", "payload": {}, "every": 900, "overlap": "skip"})).json
    assert (changed["cron"], changed["every"], changed["words"]) == (None, 900, "Every 15 minutes")
    assert (changed["queue"], changed["overlap"]) == ("default", "skip")
    assert (await http("GET", "/v1/schedules")).json == {"schedules": [changed]}
    assert (await app.schedules.get("nightly")).next_run.isoformat()[:19] == changed["next_run"][:19]


async def test_runs_of_a_schedule_have_the_requested_options(http, app):
    await http("PUT", PATH, {**BODY, "queue": "reports", "priority": -5, "max_attempts": 2, "timeout": 60})
    ran = await http("POST", f"{PATH}/run")
    assert ran.status == 200
    job = await app.job(ran.json["job_id"])
    assert (job.task, job.payload, job.queue, job.priority) == ("report", {"day": "monday"}, "reports", -5)
    assert (job.max_attempts, job.timeout) == (2, 60)
    await http("PUT", PATH, {"type": "report", "payload": {}, "every": 0.001})
    while (kept := (await http("GET", PATH)).json)["last_job"] is None:  # it is due within a millisecond
        await app.schedules.make_due_runs()
    assert (await app.job(kept["last_job"])).meta["schedule"] == "nightly"
    assert kept["last_run"] is not None


async def test_a_response_can_be_put_back(http, app):
    job = {"queue": "reports", "priority": -5, "max_attempts": 2, "timeout": 60, "tags": ["cron"], "expires_in": 90}
    retry = {"base": 1.0, "factor": 3.0, "jitter": 0.0, "cap": 60.0}
    when = {"catch_up": 3, "jitter": 5, "overlap": "skip"}
    made = (await http("PUT", PATH, {**BODY, **job, **when, "retry": retry})).json
    assert {key: made[key] for key in (*BODY, *job, *when)} == BODY | job | when
    assert made["retry"] == retry
    await http("POST", f"{PATH}/pause")
    kept = await app.schedules.get("nightly")
    answer = (await http("GET", PATH)).json
    again = await http("PUT", PATH, answer)
    assert again.status == 200, again.json
    assert again.json == answer
    assert await app.schedules.get("nightly") == kept


async def test_a_schedule_has_a_start_and_an_end(http, app):
    body = {**BODY, "start": "2090-01-01T00:00:00+01:00", "end": 3_790_000_000}
    made = (await http("PUT", PATH, body)).json
    assert (made["start"], made["end"]) == ("2089-12-31T23:00:00Z", "2090-02-05T17:46:40Z")
    assert made["next_run"] == "2090-01-01T02:00:00Z"
    assert made["words"].endswith(", from 2089-12-31 23:00 UTC, until 2090-02-05 17:46 UTC")
    assert (await http("PUT", PATH, made)).json == made
    assert (await http("PUT", PATH, {**BODY, "start": "2090-01-01T00:00:00"})).status == 422
    assert "from start to end" in (await http("PUT", PATH, {**body, "end": 1})).json["detail"]


async def test_an_invalid_enum_value_lists_the_allowed_values(http, app):
    refused = await http("PUT", PATH, BODY | {"overlap": "skp"})
    assert refused.status == 422
    assert refused.json["detail"].endswith("'skp' - at `$.overlap`; allowed values: allow, skip")
    nothing = await http("PUT", PATH, {"type": "report", "payload": {}})
    assert nothing.json["detail"] == "a schedule needs exactly one of a cron line and every"
    assert (await http("GET", "/v1/schedules")).json == {"schedules": []}


async def test_the_error_of_a_run_is_reported(http, app):
    await http("PUT", PATH, {"type": "report", "payload": {"day": "x" * 2000}, "every": 0.001})
    await app.config.set("max_payload", 1024)
    while (kept := (await http("GET", PATH)).json)["error"] is None:  # it is due within a millisecond
        await app.schedules.make_due_runs()
    assert "PayloadTooLarge" in kept["error"]
    assert (await http("GET", "/v1/schedules")).json["schedules"][0]["error"] == kept["error"]
    assert kept["last_run"] is kept["last_job"] is None


async def test_options_of_a_registered_task_are_defaults(http, app):
    @app.task(queue="ledger", max_attempts=7)
    async def report(day: str) -> None: ...

    assert (await http("PUT", PATH, BODY)).json["queue"] == "ledger"
    ran = (await http("POST", f"{PATH}/run")).json["job_id"]
    assert (await app.job(ran)).max_attempts == 7


async def test_a_schedule_is_paused_resumed_and_deleted(http, app):
    await http("PUT", "/v1/schedules/a%2Fb", BODY)
    paused = (await http("POST", "/v1/schedules/a%2Fb/pause")).json
    assert (paused["name"], paused["paused"], paused["next_run"]) == ("a/b", True, None)
    assert (await http("PUT", "/v1/schedules/a%2Fb", BODY)).json["paused"] is True
    resumed = (await http("POST", "/v1/schedules/a%2Fb/resume")).json
    assert resumed["paused"] is False
    assert resumed["next_run"] is not None
    assert (await http("DELETE", "/v1/schedules/a%2Fb")).status == 204
    assert await app.schedules.list() == []


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", PATH), ("DELETE", PATH), ("POST", f"{PATH}/pause"), ("POST", f"{PATH}/resume"), ("POST", f"{PATH}/run")],
)
async def test_an_unknown_schedule_is_404(http, method, path):
    reply = await http(method, path)
    assert reply.status == 404
    assert reply.problem == "schedule-not-found"
    assert reply.json["detail"] == "there is no schedule 'nightly' in this store; `holdfast schedule list` lists all"


@pytest.mark.parametrize(
    "change",
    [
        {"cron": None},
        {"every": 60},
        {"cron": "every morning"},
        {"cron": "0 0 31 2 *"},
        {"cron": "0 3 * * *" + " " * 200},
        {"tz": "Middle/Earth"},
        {"tz": "Europe"},
        {"tz": "../../etc/passwd"},
        {"cron": None, "every": 60, "tz": "Middle/Earth"},
        {"catch_up": 1.5},
        {"catch_up": True},
        {"retry": {"base": -1}},
        {"expires_in": 0},
        {"catch_up": -1},
        {"catch_up": 1001},
        {"jitter": -1},
        {"overlap": "perhaps"},
        {"queue": " "},
        {"priority": 40_000},
        {"max_attempts": 0},
        {"timeout": 0},
        {"tags": [""]},
        {"payload": [1]},
        {"type": "holdfast.webhook"},
        {"delay": 5},
    ],
    ids=str,
)
async def test_invalid_values_are_refused(http, app, change):
    reply = await http("PUT", PATH, {**BODY, **change})
    assert reply.status == 422
    assert reply.problem == "invalid"
    assert await app.schedules.list() == []


async def test_an_invalid_name_is_refused(http):
    assert (await http("PUT", "/v1/schedules/%20", BODY)).problem == "invalid"


async def test_shell_commands_are_refused_unless_they_are_listed(http, app):
    shell = {"type": "shell", "payload": {"command": "echo hi"}, "every": 60}
    assert (await http("PUT", PATH, shell)).problem == "shell-refused"
    async with serving(app, allow_shell=["echo hi"]) as allowed:
        assert (await allowed("PUT", PATH, shell)).status == 200
        shell["payload"]["cwd"] = "/"
        assert (await allowed("PUT", PATH, shell)).problem == "shell-refused"


async def test_reading_does_not_allow_operating(http, app):
    await http("PUT", PATH, BODY)
    reader = await tokens.create(parts_of(app).records, ["read", "submit", "work"])
    async with serving(app) as closed:
        assert (await closed("GET", "/v1/schedules")).status == 401
        closed.token = reader
        assert len((await closed("GET", "/v1/schedules")).json["schedules"]) == 1
        assert (await closed("GET", PATH)).status == 200
        for method, path in (("DELETE", PATH), ("POST", f"{PATH}/pause"), ("POST", f"{PATH}/run")):
            assert (await closed(method, path)).problem == "forbidden"
        assert (await closed("PUT", PATH, BODY)).problem == "forbidden"
