"""Token expiry and scopes: every route enforces the scope or refuses the token."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from holdfast import ConfigError, Flow, InvalidJob
from holdfast.app import parts_of
from holdfast.client.search import Scope
from holdfast.core.errors import JobNotFound
from holdfast.core.internal import Internal, write
from holdfast.http import scoping, tokens
from holdfast.store import rpc as wire
from holdfast.store.reference.memory import MemoryStore
from holdfast.testing.verbs import enqueue
from support.eventually import eventually
from support.http import serving
from support.inside import session_of

TOKEN = "a-token-of-the-environment"
INSIDE, OUTSIDE = ("mail", "report_daily"), ("money", "charge")


@pytest.fixture
async def closed(app):
    async with serving(app, token=TOKEN) as client:
        yield client


@pytest.fixture
async def stocked(app, closed):
    """A job and a schedule of each queue and task, named `QUEUE-TASK`."""
    for queue, task in (INSIDE, OUTSIDE, ("mail", "charge"), ("money", "report_daily")):
        await app.submit(task, b"{}", json=True, queue=queue, id=f"{queue}-{task}")
        body = {"type": task, "payload": {}, "queue": queue, "every": 3600}
        made = await closed("PUT", f"/v1/schedules/{queue}-{task}", body, token=TOKEN)
        assert made.status == 200, made.content
    return closed


@pytest.fixture
def made(app):
    async def made(*roles, queues=("mail",), tasks=("report_*",), **more):
        return await tokens.create(parts_of(app).records, roles or tokens.ROLES, queues=queues, tasks=tasks, **more)

    return made


def concrete(path):
    return path.replace("{", "").replace("}", "")


@pytest.mark.parametrize(
    ("scope", "queue", "task", "covered"),
    [
        (Scope(), "mail", "send", True),
        (Scope(("mail",)), "mail", "send", True),
        (Scope(("mail",)), "mail2", "send", False),
        (Scope(("mail",), ("report_*",)), "mail", "report_daily", True),
        (Scope(("mail",), ("report_*",)), "mail", "a_report_", False),
        (Scope(("mail",), ("report_*",)), "money", "report_daily", False),
        (Scope((), ("a*z", "b")), "any", "abcz", True),
        (Scope((), ("a.c", "[b]", "?")), "any", "abc", False),
        (Scope((), ("[b]",)), "any", "[b]", True),
        (Scope((), ("ab*ba",)), "any", "aba", False),
        (Scope((), ("*b*c*",)), "any", "acb", False),
        (Scope((), ("**b*c",)), "any", "a\nbbcc", True),
        (Scope((), ("*a" * 30 + "*b",)), "any", "a" * 200, False),  # a regular expression would take years
    ],
)
def test_only_a_star_is_a_wildcard(scope, queue, task, covered):
    assert scope.covers(queue, task) == covered


async def test_every_route_has_a_rule_for_scopes_or_refuses_them(closed, made):
    token = await made()
    refused = set()
    for endpoint in closed.service.endpoints:
        if endpoint.role is None:
            continue
        reply = await closed(endpoint.method, concrete(endpoint.path), token=token)
        if endpoint.within is None:
            assert (reply.status, reply.problem) == (403, "forbidden"), endpoint.path
            assert "this token is only for queue mail and task report_*" in reply.json["detail"]
            refused.add(endpoint.path)
    assert {path for path in refused if not path.startswith(wire.PATH)} == {
        "/v1/dlq/retry", "/v1/errors", "/v1/errors/{fingerprint}", "/v1/incident", "/v1/latency", "/v1/rates",
        "/v1/depths", "/v1/tasks/paused", "/v1/workers",
        "/v1/signals/{name}", "/v1/flows", "/v1/flows/{id}", "/v1/flows/{id}/graph", "/v1/explain", "/v1/config",
        "/v1/workers/control",
        "/v1/config/{key}", "/v1/events", "/metrics", "/v1/audit", "/v1/audit/{id}/undo", "/v1/webhooks",
        "/v1/webhooks/{name}",
    }  # fmt: skip
    assert {path for path in refused if path.startswith(wire.PATH)} == {
        endpoint.path for endpoint in closed.service.endpoints if endpoint.path.startswith(wire.PATH)
    }


JOB_ROUTES = [
    ("GET", "/v1/jobs/{}", None),
    ("GET", "/v1/jobs/{}/logs", None),
    ("GET", "/v1/jobs/{}/output", None),
    ("GET", "/v1/jobs/{}/stream", None),
    ("GET", "/v1/jobs/{}/explain", None),
    ("POST", "/v1/jobs/{}/cancel", None),
    ("POST", "/v1/jobs/{}/retry", None),
    ("DELETE", "/v1/jobs/{}", None),
    ("PATCH", "/v1/jobs/{}", {"priority": 1}),
    ("POST", "/v1/jobs/{}/clone", {}),
    ("POST", "/v1/dlq/{}/retry", None),
    *(("POST", f"/v1/claims/{{}}/{end}", {"fence": 1, "token": "x"}) for end in ("extend", "complete", "release")),
    ("POST", "/v1/claims/{}/fail", {"fence": 1, "token": "x", "error": "no"}),
    ("GET", "/v1/schedules/{}", None),
    ("POST", "/v1/schedules/{}/pause", None),
    ("POST", "/v1/schedules/{}/resume", None),
    ("POST", "/v1/schedules/{}/run", None),
    ("DELETE", "/v1/schedules/{}", None),
]


def test_every_route_of_one_job_or_schedule_is_tested(closed):
    tried = {(method, path.format("X")) for method, path, _ in JOB_ROUTES}
    rules = (scoping.one_job, scoping.changed_job, scoping.schedule)
    for endpoint in closed.service.endpoints:
        if endpoint.within in rules:
            path = endpoint.path.replace("{id}", "X").replace("{job}", "X").replace("{name}", "X")
            assert (endpoint.method, path) in tried


@pytest.mark.parametrize(("method", "path", "body"), JOB_ROUTES, ids=str)
async def test_objects_outside_the_scope_cannot_be_read_or_changed(stocked, made, method, path, body):
    token = await made()
    before = (
        (await stocked("GET", "/v1/jobs", token=TOKEN)).json,
        (await stocked("GET", "/v1/schedules", token=TOKEN)).json,
    )
    for outside in ("money-charge", "mail-charge", "money-report_daily"):
        reply = await stocked(method, path.format(outside), body, token=token)
        unknown = await stocked(method, path.format("no-such-one"), body, token=token)
        assert reply.status == unknown.status >= 400, outside
        assert reply.content.replace(outside.encode(), b"no-such-one") == unknown.content, "it reveals that it exists"
    after = (
        (await stocked("GET", "/v1/jobs", token=TOKEN)).json,
        (await stocked("GET", "/v1/schedules", token=TOKEN)).json,
    )
    assert after == before
    if not path.endswith("/stream"):  # it has no end before the job's; test_http_stream.py reads it
        assert (await stocked(method, path.format("mail-report_daily"), body, token=token)).status not in (401, 403)


async def test_lists_are_restricted_to_the_scope(stocked, made):
    for token in (await made(), await made(queues=["m*l"], tasks=["report_daily"])):
        for path in ("/v1/jobs", "/v1/search", "/v1/jobs?queue=mail", "/v1/search?type=report_daily"):
            assert [job["id"] for job in (await stocked("GET", path, token=token)).json["jobs"]] == [
                "mail-report_daily"
            ]
        assert (await stocked("GET", "/v1/count", token=token)).json["count"] == 1
        assert (await stocked("GET", "/v1/dlq", token=token)).json["jobs"] == []
        [schedule] = (await stocked("GET", "/v1/schedules", token=token)).json["schedules"]
        assert schedule["name"] == "mail-report_daily"
        for path in ("/v1/jobs", "/v1/dlq", "/v1/search", "/v1/count"):
            for named in ("queue=money", "type=charge"):
                assert (await stocked("GET", f"{path}?{named}", token=token)).problem == "forbidden"
        assert (await stocked("GET", "/v1/stats", token=token)).problem == "forbidden"


async def test_pages_of_a_narrow_scope_are_complete(app, closed, made):
    for number in range(60):
        await app.submit("report_daily" if number % 7 == 0 else "charge", b"{}", json=True, id=f"{number}")
    token = await made(queues=[], tasks=["report_*"])
    found, cursor = [], ""
    while cursor is not None:
        page = (await closed("GET", f"/v1/jobs?limit=4{cursor and '&cursor=' + cursor}", token=token)).json
        found += [job["id"] for job in page["jobs"]]
        cursor = page["cursor"]
    assert found == [f"{number}" for number in range(59, -1, -1) if number % 7 == 0]


async def test_jobs_are_submitted_only_inside_the_scope(app, closed, made):
    token = await made("submit")

    @app.task(queue="money")
    def report_yearly() -> None: ...

    async def submit(queue, task, key, **more):
        body = {"type": task, "payload": {}, **({"queue": queue} if queue else {}), **more}
        return await closed("POST", "/v1/jobs", body, token=token, Idempotency_Key=key)

    assert (await submit(*INSIDE, "1")).status == 201
    for queue, task in (OUTSIDE, ("mail", "charge"), ("money", "report_daily"), (None, "report_daily")):
        assert (await submit(queue, task, "2")).problem == "forbidden"
    assert (await submit(None, "report_yearly", "2")).problem == "forbidden", "its own queue counts"
    for how in ({"replace": True}, {"debounce": 5}):
        assert (await submit(*INSIDE, "1", **how)).problem == "forbidden"
    assert (await submit(*INSIDE, "4", on_success="charge")).problem == "forbidden", "so does a follow-up"
    await app.submit("report_daily", b"{}", json=True, queue="money", key="3")
    assert (await submit(*INSIDE, "3")).problem == "forbidden", "the job of the key is not shown"
    jobs = [{"type": task, "payload": {}, "queue": "mail", "key": task} for task in ("report_a", "charge")]
    batch = await closed("POST", "/v1/jobs/batch", {"jobs": jobs}, token=token)
    assert [one["status"] for one in batch.json["jobs"]] == [201, 403]
    outside = (await app.submit("report_daily", b"{}", json=True, queue="money", key="3")).id
    for task in ("report_daily", "report_a"):  # the task of the existing job, and another
        same = {"type": task, "payload": {}, "queue": "mail", "key": "3"}
        again = await closed("POST", "/v1/jobs/batch", {"jobs": [same]}, token=token)
        assert [one["status"] for one in again.json["jobs"]] == [403]
        alone = await submit("mail", task, "3")
        assert alone.status == 403
        assert outside not in again.content.decode() + alone.content.decode(), "the job of the key is not named"
    assert {(job.queue, job.task) for job in (await app.jobs()).jobs} == {
        INSIDE, ("mail", "report_a"), ("money", "report_daily"),
    }  # fmt: skip


async def test_jobs_are_claimed_only_inside_the_scope(stocked, made):
    token = await made("work")
    for wrong in ({}, {"queues": ["mail"]}, {"queues": ["mail", "money"], "types": ["report_daily"]},
                  {"queues": ["mail"], "types": ["report_daily", "charge"]}):  # fmt: skip
        assert (await stocked("POST", "/v1/claims", wrong, token=token)).problem == "forbidden"
    body = {"queues": ["mail"], "types": ["report_daily"], "limit": 10}
    [claim] = (await stocked("POST", "/v1/claims", body, token=token)).json["claims"]
    assert claim["job"]["id"] == "mail-report_daily"
    proof = {"fence": claim["fence"], "token": claim["token"]}
    assert (await stocked("POST", "/v1/claims/mail-report_daily/complete", proof, token=token)).status == 204


async def test_a_claim_defaults_to_the_tasks_of_the_scope(stocked, made):
    token = await made("work", queues=[], tasks=["charge"])
    body = {"queues": ["mail", "money"], "limit": 10}
    claims = (await stocked("POST", "/v1/claims", body, token=token)).json["claims"]
    assert {claim["job"]["id"] for claim in claims} == {"money-charge", "mail-charge"}


async def test_a_bulk_change_is_restricted_to_the_scope(app, stocked, made):
    token = await made()
    for other in ("money-charge", "no-such-one"):
        ids = ["mail-report_daily", other]
        reply = await stocked("POST", "/v1/bulk", {"action": "delete", "ids": ids}, token=token)
        assert f"no job '{other}' in this store" in reply.json["detail"]
    for which in ({"filter": {"queue": "money"}}, {"filter": {"type": "charge"}}):
        assert (await stocked("POST", "/v1/bulk", {"action": "delete", **which}, token=token)).problem == "forbidden"
    for which in ({"filter": {}, "all": True}, {"all": True}, {"filter": {"text": "a"}}):
        body = {"action": "delete", "dry_run": True, **which}
        assert (await stocked("POST", "/v1/bulk", body, token=token)).json["matched"] == 1
    assert (await stocked("POST", "/v1/bulk", {"action": "delete", "all": True}, token=token)).json["changed"] == 1
    assert {job.id for job in (await app.jobs()).jobs} == {"money-charge", "mail-charge", "money-report_daily"}


async def test_a_job_is_not_moved_to_a_task_outside_the_scope(app, stocked, made):
    token = await made()
    body = {"action": "move", "ids": ["mail-report_daily"], "to": "charge"}
    assert (await stocked("POST", "/v1/bulk", body, token=token)).problem == "forbidden"
    assert (await stocked("POST", "/v1/bulk", body | {"to": "report_weekly"}, token=token)).json["changed"] == 1
    assert (await app.job("mail-report_daily")).task == "report_weekly"


async def test_a_schedule_outside_the_scope_cannot_be_replaced(stocked, made):
    token = await made("operate")
    body = {"type": "report_daily", "payload": {}, "queue": "mail", "every": 60}
    assert (await stocked("PUT", "/v1/schedules/new", body, token=token)).status == 200
    assert (await stocked("PUT", "/v1/schedules/money-charge", body, token=token)).problem == "forbidden"
    assert (await stocked("PUT", "/v1/schedules/new", body | {"queue": "money"}, token=token)).problem == "forbidden"


async def test_routes_of_whole_queues_and_tasks_need_a_wide_scope(stocked, made):
    queue, task, both = await made(tasks=[]), await made(queues=[]), await made()

    async def tried(path, token):
        return (await stocked("POST", path, {} if "tasks" in path else None, token=token)).status

    for verb in ("pause", "resume"):
        assert await tried(f"/v1/queues/mail/{verb}", queue) == 200
        assert await tried(f"/v1/queues/money/{verb}", queue) == 403
        assert await tried(f"/v1/queues/mail/{verb}", task) == await tried(f"/v1/queues/mail/{verb}", both) == 403
        assert await tried(f"/v1/tasks/report_daily/{verb}", task) == 200
        assert await tried(f"/v1/tasks/charge/{verb}", task) == 403
        assert await tried(f"/v1/tasks/report_daily/{verb}", queue) == 403
    seen = (await stocked("GET", "/v1/stats", token=queue)).json
    assert [one["name"] for one in seen["queues"]] == ["mail"]
    assert seen["counts"]["queued"] == 2
    why = await stocked("GET", "/v1/queues/mail/explain", token=queue)
    assert (why.status, why.json["waiting"]) == (200, 2)
    assert (await stocked("GET", "/v1/queues/money/explain", token=queue)).status == 403
    assert (await stocked("GET", "/v1/queues/mail/explain", token=task)).status == 403


async def test_a_flow_is_outside_of_every_scope(app, closed, made):
    @app.task(queue="mail")
    def report_part() -> None: ...

    flow = Flow("of two")
    first = flow.add(report_part)
    flow.add(report_part).after(first)
    handle = await app.enqueue_flow(flow)
    token = await made(tasks=[])
    member = f"{handle.id}.0"
    assert (await closed("GET", f"/v1/jobs/{member}", token=token)).status == 200
    assert (await closed("GET", f"/v1/jobs/{handle.id}", token=token)).problem == "job-not-found"
    for id, problem in ((member, "forbidden"), (handle.id, "job-not-found")):
        for method, path in (
            ("POST", f"/v1/jobs/{id}/cancel"),
            ("POST", f"/v1/jobs/{id}/retry"),
            ("DELETE", f"/v1/jobs/{id}"),
        ):
            assert (await closed(method, path, token=token)).problem == problem
        assert (await closed("POST", "/v1/bulk", {"action": "cancel", "ids": [id]}, token=token)).problem == problem
    done = (await closed("POST", "/v1/bulk", {"action": "cancel", "all": True}, token=token)).json
    assert (done["matched"], done["changed"], done["skipped"]) == (2, 0, 2)


async def test_me_returns_the_scope_of_the_token(closed, made):
    me = (await closed("GET", "/v1/me", token=await made("read", expires=3600))).json
    assert (me["roles"], me["queues"], me["tasks"]) == (["read"], ["mail"], ["report_*"])
    assert me["expires_at"] > me["now"]
    everything = (await closed("GET", "/v1/me", token=TOKEN)).json
    assert (everything["queues"], everything["tasks"], everything["expires_at"]) == ([], [], None)


async def test_a_token_expires_by_the_clock_of_the_store(app, closed, monkeypatch):
    token = await tokens.create(parts_of(app).records, ["read"], expires=3600)
    assert (await closed("GET", "/v1/jobs", token=token)).status == 200
    now = session_of(app).store.now

    async def later():
        return await now() + 3_601_000_000

    monkeypatch.setattr(session_of(app).store, "now", later)
    monkeypatch.setattr(tokens, "TOKENS_MAX_AGE", 0.01)

    async def refused():
        return (await closed("GET", "/v1/jobs", token=token)).status == 401

    await eventually(refused)
    [seen] = await tokens.tokens(parts_of(app).records)
    assert seen.expired


async def test_a_token_expires_during_a_store_outage(app, closed, monkeypatch):
    token = await tokens.create(parts_of(app).records, ["read"], expires=60.0)
    assert (await closed("GET", "/v1/me", token=token)).status == 200
    known = closed.service.auth.keyring
    later = known._clock.monotonic() + 61.0
    monkeypatch.setattr(tokens, "TOKENS_MAX_AGE", 3600.0)  # the store is not read again
    monkeypatch.setattr(known, "_clock", SimpleNamespace(monotonic=lambda: later))
    assert (await closed("GET", "/v1/me", token=token)).status == 401


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"expires": 0}, "a number of seconds above 0"),
        ({"expires": "soon"}, "a number of seconds above 0"),
        ({"label": "x" * 101}, "a label must be 1 to 100"),
        ({"label": "a\n"}, "a label"),
        ({"queues": [""]}, "queue name"),
        ({"tasks": ["a\n"]}, "task name"),
        ({"tasks": [f"{number}" for number in range(51)]}, "at most 50"),
    ],
)
async def test_an_invalid_token_is_not_created(app, options, words):
    with pytest.raises((ConfigError, InvalidJob), match=words):
        await tokens.create(parts_of(app).records, ["read"], **options)
    assert await tokens.tokens(parts_of(app).records) == []


async def test_the_job_of_a_flow_is_outside_every_scope():
    store = MemoryStore()
    own = await enqueue(store, "f", queue="flows", task="flow", extra=write(Internal(flow="f", allow_unfinished=0)))
    job = await enqueue(store, "f.0", queue="flows", task="flow", extra=write(Internal(flow="f")))
    scope = Scope(("flows",), ("flow",))
    assert scoping._check_record(scope, job, "f.0") is job
    with pytest.raises(JobNotFound):
        scoping._check_record(scope, own, "f")
