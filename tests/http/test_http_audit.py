"""The audit log, edits and clones, and the access log, over HTTP."""

from __future__ import annotations

import logging

import pytest

from holdfast import ConfigError, Flow, Holdfast, InvalidJob, JobNotFound, State
from holdfast.app import parts_of
from holdfast.client import audited
from holdfast.client.audit_log import Entry
from holdfast.core import lifecycle
from holdfast.http import tokens
from support.dead_jobs import make_dead
from support.http import serving
from support.inside import session_of
from support.workers import work_off

TOKEN = "a-token-of-the-environment"
ACTIONS = {
    ("POST", "/v1/jobs/{id}/cancel"): "cancel",
    ("POST", "/v1/jobs/{id}/retry"): "retry",
    ("POST", "/v1/jobs/{id}/clone"): "clone",
    ("PATCH", "/v1/jobs/{id}"): "edit",
    ("DELETE", "/v1/jobs/{id}"): "delete",
    ("POST", "/v1/dlq/retry"): "bulk.retry_dead",
    ("POST", "/v1/dlq/{id}/retry"): "retry",
    ("POST", "/v1/queues/{name}/pause"): "pause",
    ("POST", "/v1/queues/{name}/resume"): "resume",
    ("POST", "/v1/tasks/{name}/pause"): "pause",
    ("POST", "/v1/tasks/{name}/resume"): "resume",
    ("POST", "/v1/bulk"): "bulk.change",
    ("PUT", "/v1/schedules/{name}"): "schedule.put",
    ("POST", "/v1/schedules/{name}/pause"): "schedule.pause",
    ("POST", "/v1/schedules/{name}/resume"): "schedule.resume",
    ("POST", "/v1/schedules/{name}/run"): "schedule.run_now",
    ("DELETE", "/v1/schedules/{name}"): "schedule.delete",
    ("POST", "/v1/workers/control"): "worker.control",
    ("POST", "/v1/audit/{id}/undo"): "audit.undo",
    ("PUT", "/v1/webhooks/{name}"): "webhook.add",
    ("DELETE", "/v1/webhooks/{name}"): "webhook.remove",
    ("POST", "/v1/tokens"): "token.create",
    ("PATCH", "/v1/tokens/{id}"): "token.edit",
    ("DELETE", "/v1/tokens/{id}"): "token.revoke",
    ("PUT", "/v1/config/{key}"): "config.set",
    ("DELETE", "/v1/config/{key}"): "config.unset",
}
"""The action of every route that needs the role `operate`."""
BODIES = {
    "bulk.change": {"action": "cancel", "ids": ["the-job"]},
    "schedule.put": {"type": "noop", "payload": {}, "every": 60},
    "config.set": {"value": 2},
    "webhook.add": {"url": "https://example.com/hook"},
    "token.create": {"roles": ["read"]},
    "edit": {"priority": 3},
    "worker.control": {"action": "quiet", "all_workers": True},
}


@pytest.fixture
async def closed(app):
    async with serving(app, token=TOKEN) as client:
        client.token = TOKEN
        yield client


async def entries(client, **query):
    asked = "&".join(f"{name}={value}" for name, value in query.items())
    return (await client("GET", f"/v1/audit?{asked}")).json["entries"]


async def the_job(app):
    try:
        await app.job("the-job")
    except JobNotFound:
        await app.submit("noop", b"{}", json=True, id="the-job")


async def test_every_route_of_an_operator_has_its_entry(app, closed):
    writing = {
        (endpoint.method, endpoint.path)
        for endpoint in closed.service.listed
        if endpoint.role == "operate" and endpoint.method != "GET"
    }
    assert writing == ACTIONS.keys(), "a new route of an operator needs an audited action: add it to ACTIONS"
    for (method, path), action in ACTIONS.items():
        [dead] = await make_dead(app, 1)
        where = path.format(id=dead if "/dlq/" in path else "the-job", name="the-name", key="poll")
        await the_job(app)
        before = len(await entries(closed, limit=200))
        await closed(method, where, BODIES.get(action))
        assert action in audited.ACTIONS
        found = await entries(closed, limit=200)
        assert [entry["action"] for entry in found[: len(found) - before]] == [action], path
        assert (found[0]["actor"], found[0]["surface"]) == ("HOLDFAST_TOKEN", "http")


async def test_the_actor_is_the_label_of_the_token(app, closed):
    records = parts_of(app).records
    labelled = await tokens.create(records, ["operate"], "deploy bot")
    plain = await tokens.create(records, ["operate"])
    await closed("POST", "/v1/queues/a/pause", token=labelled)
    await closed("POST", "/v1/queues/b/pause", token=plain, Holdfast_Client="dashboard")
    found = await entries(closed, action="pause")
    assert [(one["actor"], one["surface"], one["target"]["queue"], one["status"]) for one in found] == [
        (f"token {plain.split('_')[1]}", "dashboard", "b", "done"),
        ("deploy bot", "http", "a", "done"),
    ]
    whole = (await closed("GET", "/v1/audit?limit=200")).content.decode()
    assert labelled.split("_", 2)[2] not in whole
    assert TOKEN not in whole


async def test_the_log_needs_the_role_operate_and_no_scope(app, closed):
    records = parts_of(app).records
    operator = await tokens.create(records, ["operate"])
    others = await tokens.create(records, ["read", "submit", "work"])
    scoped = await tokens.create(records, ["operate"], queues=["mail"])
    for token, status in ((operator, 200), (others, 403), (scoped, 403)):
        assert (await closed("GET", "/v1/audit", token=token)).status == status
    assert (await closed("GET", "/v1/audit?cursor=x")).status == 422
    assert (await closed("GET", "/v1/audit?limit=0")).status == 422


async def test_an_action_is_undone_with_the_role_operate_and_no_scope(app, closed):
    records = parts_of(app).records
    reader = await tokens.create(records, ["read", "submit", "work"])
    scoped = await tokens.create(records, ["operate"], queues=["mail"])
    job = await app.submit("work", b"{}", json=True, queue="mail", delay=60)
    await closed("POST", f"/v1/jobs/{job.id}/cancel")
    [entry] = await entries(closed, action="cancel")
    assert entry["undo"] == {"count": 1, "excluded": {}}
    path = f"/v1/audit/{entry['id']}/undo"
    for token in (reader, scoped):
        assert (await closed("POST", path, token=token)).status == 403
    assert (await app.job(job.id)).state == State.CANCELLED
    answers = [(await closed("POST", path)).json for _ in range(2)]
    assert answers[0] == {"changed": 1, "skipped": 0, "reasons": {}, "why": []}
    assert answers[1]["reasons"] == {"changed": 1}
    assert (await app.job(job.id)).state == State.SCHEDULED
    for id in ("x", entry["id"][:-1] + "-"):
        assert (await closed("POST", f"/v1/audit/{id}/undo")).status == 422
    undone = await entries(closed, action="audit.undo")
    assert [one["status"] for one in undone] == ["refused", "refused", "done", "done"]


async def test_pages_of_the_log(closed):
    for number in range(5):
        await closed("POST", f"/v1/queues/q{number}/pause")
    first = (await closed("GET", "/v1/audit?limit=3")).json
    second = (await closed("GET", f"/v1/audit?limit=3&cursor={first['cursor']}")).json
    found = [one["target"]["queue"] for one in first["entries"] + second["entries"]]
    assert (found, second["cursor"]) == (["q4", "q3", "q2", "q1", "q0"], None)


async def test_a_refused_request_of_an_operator_is_recorded_as_refused(closed):
    assert (await closed("POST", "/v1/jobs/no-such-job/cancel")).status == 422
    [entry] = await entries(closed)
    assert (entry["status"], entry["target"]) == ("refused", {"id": "no-such-job"})


# -- the store protocol


async def test_a_remote_app_records_its_actions_and_reads_them_with_the_role_operate(app, closed, tmp_path):
    records = parts_of(app).records
    operator = await tokens.create(records, ["work", "operate"])
    worker = await tokens.create(records, ["work"])
    job = await app.submit("work", b"{}", json=True)
    for name, token in (("operator", operator), ("worker", worker)):
        (tmp_path / name).write_text(token)
        (tmp_path / name).chmod(0o600)
    async with Holdfast(f"{closed.url}?token_file={tmp_path}/operator") as remote:
        assert await remote.cancel(job.id)
        [entry] = (await remote.audit.list(action="cancel")).entries
        assert (entry.target, entry.status, entry.surface) == ({"id": job.id}, "done", "python")
        assert (await remote.audit.undo(entry.id)).changed == 1
        assert (await app.job(job.id)).state == State.QUEUED
        store = session_of(remote).store
        kind = f"audit:{int(entry.at.timestamp())}"
        for value in (None, b"{}"):
            with pytest.raises(ConfigError, match=r"was not changed: .* neither removed, nor changed once"):
                await store.put_record(kind, entry.id, value)
    async with Holdfast(f"{closed.url}?token_file={tmp_path}/worker") as remote:
        with pytest.raises(ConfigError, match="operate"):
            await remote.audit.list()
        for one in (kind, "audit_hour", f"audit_hour:{int(entry.at.timestamp()) // 3600}"):
            with pytest.raises(ConfigError, match="operate"):
                await session_of(remote).store.records([one])
        with pytest.raises(ConfigError, match="operate"):
            await remote.pause("x")
    assert [one["target"].get("queue") for one in await entries(closed, action="pause")] == []


async def test_a_store_write_without_an_entry_of_the_client_is_recorded_under_the_token(app, closed, monkeypatch):
    operator = await tokens.create(parts_of(app).records, ["work", "operate"], "deploy")
    job = await app.submit("work", b"{}", json=True)
    monkeypatch.setenv("HOLDFAST_TOKEN", operator)
    async with Holdfast(closed.url) as remote:
        session = session_of(remote)
        [record] = await session.store.get([job.id])
        assert await session.commit.change([lifecycle.cancel(record, session.rules)]) == [True]
        assert await session.store.put_record("pause", "mail", b"{}")
        found = await entries(closed, action="store.write")
        assert [(one["actor"], one["surface"], one["status"]) for one in found] == [("deploy", "http", "done")] * 2
        assert found[0]["target"] == {"kind": "pause", "name": "mail"}
        [change] = found[1]["target"]["changes"]
        assert (change["id"], change["before"], change["state"]) == (job.id, "queued", "cancelled")

        assert await remote.retry(job.id)
        await remote.pause("other")
        work = remote.task(lambda text: text, name="work")
        for text in ("one", "two"):
            await work.using(key="k", replace=True).enqueue(text)
        assert len(await entries(closed, action="store.write")) == 2, "the client's own entry is enough"
        assert (await entries(closed, action="pause"))[0]["actor"].startswith("deploy: ")
        with pytest.raises(InvalidJob, match="cannot be decoded"):
            await session.store.put_record("audit:1", "x", b"[]")
        theirs = Entry("cancel", "ann", "cli", {}, 0)
        await session_of(app).store.put_record("audit:1", "x", theirs.encoded())
        with pytest.raises(InvalidJob, match="of another actor"):
            await session.store.put_record("audit:1", "x", theirs.encoded())


async def test_a_worker_with_all_roles_has_no_entries(app, closed, monkeypatch):
    monkeypatch.setenv("HOLDFAST_TOKEN", TOKEN)
    async with Holdfast(closed.url) as remote:

        @remote.task
        async def double(number: int) -> int:
            return 2 * number

        flow = Flow()
        flow.chain(double.using().call(1), double)
        handle = await remote.enqueue_flow(flow)
        await work_off(remote)
        assert (await handle.status()).state == State.SUCCEEDED
    assert await entries(closed) == []


# -- edits and clones


async def test_edit_a_waiting_job(app, closed):
    @app.task
    def add(one: int, two: int = 2) -> int:
        return one + two

    id = (await closed.submit("add", {"one": 1}, delay=600)).json["id"]
    body = {"payload": {"one": 5}, "queue": "fast", "priority": -3, "run_at": "2040-01-01T00:00:00Z"}
    edited = await closed("PATCH", f"/v1/jobs/{id}", body)
    assert edited.status == 200, edited.content
    found = edited.json
    assert (found["payload"], found["queue"], found["priority"]) == ({"one": 5}, "fast", -3)
    assert found["run_at"].startswith("2040-01-01T00:00:00")
    for wrong in ({}, {"payload": {"three": 3}}, {"payload": [1]}, {"priority": 99999}, {"task": "x"}, {"delay": -1}):
        refused = await closed("PATCH", f"/v1/jobs/{id}", wrong)
        assert (refused.status, refused.problem) == (422, "invalid"), wrong
    assert (await closed("PATCH", f"/v1/jobs/{id}", {"delay": 0})).json["status"] == "queued"
    await app.claim("fast")
    refused = await closed("PATCH", f"/v1/jobs/{id}", {"payload": {"one": 6}})
    assert (refused.status, refused.problem) == (409, "invalid-state")
    assert (await closed("PATCH", "/v1/jobs/no-such-job", {"priority": 1})).status == 422


async def test_a_refused_edit_names_the_fields_of_the_request(app, closed):
    id = (await closed.submit("noop", {"a": 1}, delay=600)).json["id"]
    nothing = await closed("PATCH", f"/v1/jobs/{id}", {})
    assert nothing.json["detail"] == "nothing to edit: give payload, queue, priority, delay, run_at"
    both = await closed("PATCH", f"/v1/jobs/{id}", {"delay": 1, "run_at": "2040-01-01T00:00:00Z"})
    assert both.json["detail"] == "give either delay or run_at, not both"


async def test_clone_a_job(app, closed):
    id = (await closed.submit("noop", {"a": 1}, queue="mail")).json["id"]
    made = await closed("POST", f"/v1/jobs/{id}/clone", {"payload": {"a": 2}, "priority": 2, "key": "k"})
    assert made.status == 201, made.content
    found = made.json
    assert (found["payload"], found["queue"], found["priority"], found["key"]) == ({"a": 2}, "mail", 2, "k")
    again = await closed("POST", f"/v1/jobs/{id}/clone", {"payload": {"a": 2}, "priority": 2, "key": "k"})
    assert again.json["id"] == found["id"]
    assert (await closed("POST", f"/v1/jobs/{id}/clone", {"payload": {"a": 3}, "key": "k"})).status == 422
    assert (await closed("POST", f"/v1/jobs/{id}/clone")).json["payload"] == {"a": 1}


async def test_edits_and_clones_pass_the_policy_of_the_server(app, closed):
    shell = await app.submit("shell", b'{"command": "true"}', json=True, delay=600)
    for method, path in (("PATCH", f"/v1/jobs/{shell.id}"), ("POST", f"/v1/jobs/{shell.id}/clone")):
        refused = await closed(method, path, {"payload": {"command": "rm -rf /"}})
        assert (refused.status, refused.problem) == (403, "shell-refused")
    other = await app.submit("os:system", b"{}", json=True, delay=600)
    for method, path in (("PATCH", f"/v1/jobs/{other.id}"), ("POST", f"/v1/jobs/{other.id}/clone")):
        refused = await closed(method, path, {"payload": {"command": "x"}})
        assert (refused.status, refused.problem) == (403, "task-refused")
    assert (await closed("PATCH", f"/v1/jobs/{shell.id}", {"priority": 4})).status == 200
    assert len((await app.jobs()).jobs) == 2


async def test_a_scope_holds_for_the_new_queue(app, closed):
    token = await tokens.create(parts_of(app).records, ["operate"], queues=["mail"])
    job = await app.submit("work", b"{}", json=True, queue="mail", delay=600)
    for method, path in (("PATCH", f"/v1/jobs/{job.id}"), ("POST", f"/v1/jobs/{job.id}/clone")):
        refused = await closed(method, path, {"queue": "money"}, token=token)
        assert (refused.status, refused.problem) == (403, "forbidden")
        assert (await closed(method, path, {"priority": 1}, token=token)).status in (200, 201)
    hidden = await app.submit("work", b"{}", json=True, queue="money", key="k")
    for body in ({"key": "k"}, {"key": "k", "payload": {"other": 1}}):  # the same call, and another one
        refused = await closed("POST", f"/v1/jobs/{job.id}/clone", body, token=token)
        assert (refused.status, refused.problem) == (403, "forbidden")
        assert hidden.id not in refused.content.decode()


async def test_retry_at_a_rate(app, closed):
    ids = await make_dead(app, 10)
    answer = await closed("POST", "/v1/dlq/retry", {"rate": 2})
    assert answer.json["retried"] == 10
    times = sorted([(await app.job(id)).run_at for id in ids])
    assert (times[-1] - times[0]).total_seconds() >= 4.5 - 1e-3
    for wrong in (0, -1, "100/s", 1e9):
        assert (await closed("POST", "/v1/dlq/retry", {"rate": wrong})).status == 422
    ids = await make_dead(app, 3)
    body = {"action": "retry", "ids": ids, "rate": 1, "spaced": 10}
    assert (await closed("POST", "/v1/bulk", body)).json["changed"] == 3
    assert {(await app.job(id)).state for id in ids} == {State.SCHEDULED}


# -- the access log


async def test_every_request_is_an_event_with_its_path_and_sender(app, closed, caplog):
    events = parts_of(app).events
    token = await tokens.create(parts_of(app).records, ["read"], "reader")
    events.levels["http_request"] = logging.INFO
    with caplog.at_level(logging.INFO, "holdfast"):
        await closed("GET", "/v1/jobs/some-job?x=secret", token=token)
        await closed("GET", f"/v1/jobs/{token}", token=token)
        await closed("GET", "/v1/jobs", token="hf_wrong")
    lines = [record.fields for record in caplog.records if getattr(record, "event", "") == "http_request"]
    assert [(one["method"], one["path_template"], one["path"], one["status_code"], one["sender"]) for one in lines] == [
        ("GET", "/v1/jobs/{id}", "/v1/jobs/some-job", 422, "reader"),
        ("GET", "/v1/jobs/{id}", f"/v1/jobs/hf_{token.split('_')[1]}_***", 422, "reader"),
        ("GET", "/v1/jobs", "/v1/jobs", 401, "anonymous"),
    ]
    assert all(one["ran"] >= 0 for one in lines)
    assert token.split("_", 2)[2] not in str(lines)
    assert "secret" not in str(lines)
