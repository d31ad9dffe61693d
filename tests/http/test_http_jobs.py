"""Jobs over HTTP: submit, inspect and operate."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from holdfast import Context, Discard, limit
from holdfast.app import parts_of
from holdfast.core.internal import Internal, write
from holdfast.core.job import NewJob
from holdfast.core.operations import Note, Output
from holdfast.http import limits
from holdfast.http.jobs import as_stored
from holdfast.http.shapes import job_out
from holdfast.store.reference.apply import new_record
from holdfast.views import job_view
from support.http import serving
from support.inside import release_of, session_of
from support.workers import work_off

NOW = 1_700_000_000_123_456
UNKNOWN = "00000000-0000-7000-8000-000000000000"


async def test_a_submission_returns_201_with_the_job(http):
    reply = await http.submit("email.send", {"to": "a@example.com"}, "k1")
    assert reply.status == 201
    job = reply.json
    assert (job["type"], job["status"], job["attempts"], job["max_attempts"]) == ("email.send", "queued", 0, 5)
    assert job["payload"] == {"to": "a@example.com"}
    assert job["created_at"].endswith("Z")
    assert job["run_at"].endswith("Z")
    assert reply.headers["content-type"] == "application/json"


async def test_a_new_job_has_the_same_fields_as_a_read_job(http):
    made = (await http.submit("t", {"a": [1, None, "ü"]}, tags=["x"], priority=-3, queue="mail", timeout=5)).json
    read = (await http("GET", f"/v1/jobs/{made['id']}")).json
    for name in ("created_at", "updated_at", "run_at"):
        one, other = (datetime.fromisoformat(job.pop(name)) for job in (made, read))
        assert abs(one - other) < timedelta(seconds=5)
    assert made == read


async def test_a_job_of_a_limited_task_has_its_limit_key(http, app):
    @app.task(limit=limit(key="customer", concurrency=1))
    async def send(customer: int) -> None: ...

    made = (await http.submit("send", {"customer": 5})).json
    limits = [{"name": "send", "key": "5"}]
    assert made["limits"] == (await http("GET", f"/v1/jobs/{made['id']}")).json["limits"] == limits
    batch = [{"type": "send", "payload": {"customer": n}, "key": str(n)} for n in (1, None)]
    taken, refused = (await http("POST", "/v1/jobs/batch", {"jobs": batch})).json["jobs"]
    assert (await http("GET", f"/v1/jobs/{taken['id']}")).json["limits"] == [{"name": "send", "key": "1"}]
    assert refused["status"] == 422
    assert "parameter 'customer' of send() is invalid" in refused["problem"]["detail"]


async def test_the_same_key_and_body_return_the_same_job(http):
    first = await http.submit("t", {"a": 1, "b": 2}, "k1")
    again = await http.submit("t", {"b": 2, "a": 1}, "k1")
    assert (first.status, again.status) == (201, 200)
    assert again.json["id"] == first.json["id"]


async def test_the_same_key_with_another_body_is_refused(http):
    first = await http.submit("t", {"a": 1}, "k1")
    for other in (await http.submit("t", {"a": 2}, "k1"), await http.submit("u", {"a": 1}, "k1")):
        assert other.status == 422
        assert other.problem == "key-conflict"
        assert other.json["job_id"] == first.json["id"]


async def test_a_key_is_remembered_after_its_job_is_removed(http, app):
    await app.config.set("retention", 0)
    id = (await http.submit("t", {"a": 1}, "k1", queue="q")).json["id"]
    [claim] = await app.claim("q")
    await claim.complete()
    assert (await http("GET", f"/v1/jobs/{id}")).status == 404
    again = await http.submit("t", {"a": 1}, "k1", queue="q")
    assert again.status == 200
    job = again.json
    assert (job["id"], job["type"], job["payload"], job["queue"], job["key"]) == (id, "t", {"a": 1}, "q", "k1")
    assert job["status"] == "removed"


async def test_fifty_concurrent_posts_with_one_key_create_one_job(http):
    replies = await asyncio.gather(*(http.submit("t", {"a": 1}, "one") for _ in range(50)))
    assert sorted(reply.status for reply in replies) == [200] * 49 + [201]
    assert len({reply.json["id"] for reply in replies}) == 1


@pytest.mark.parametrize("key", ["", "x" * 513, "a\u200bb"])
async def test_a_key_is_1_to_512_printable_characters(http, key):
    reply = await http("POST", "/v1/jobs", {"type": "t", "payload": {}}, Idempotency_Key=key)
    assert reply.status == 422
    assert reply.problem == "invalid"
    assert "Idempotency-Key" in reply.json["detail"]


async def test_keys_of_512_characters_and_utf_8_are_accepted(http):
    assert (await http.submit("t", key="x" * 512)).status == 201
    assert (await http.submit("t", key="grüße")).json["key"] == "grüße"


async def test_a_missing_key_is_refused(http):
    reply = await http("POST", "/v1/jobs", {"type": "t", "payload": {}})
    assert reply.status == 422
    assert "Idempotency-Key" in reply.json["detail"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"type": "t"},
        {"payload": {}},
        {"type": "", "payload": {}},
        {"type": "x" * 129, "payload": {}},
        {"type": " t", "payload": {}},
        {"type": "t\x00", "payload": {}},
        {"type": 5, "payload": {}},
        {"type": "t", "payload": []},
        {"type": "t", "payload": None},
        {"type": "t", "payload": "x"},
        {"type": "t", "payload": {}, "max_attempts": 0},
        {"type": "t", "payload": {}, "max_attempts": 26},
        {"type": "t", "payload": {}, "max_attempts": 1.5},
        {"type": "t", "payload": {}, "max_attempts": True},
        {"type": "t", "payload": {}, "queue": ""},
        {"type": "t", "payload": {}, "priority": 40_000},
        {"type": "t", "payload": {}, "delay": -1},
        {"type": "t", "payload": {}, "delay": 1e300},
        {"type": "t", "payload": {}, "delay": 5, "run_at": "2030-01-01T00:00:00Z"},
        {"type": "t", "payload": {}, "run_at": "2030-01-01T00:00:00"},
        {"type": "t", "payload": {}, "run_at": "tomorrow"},
        {"type": "t", "payload": {}, "run_at": 1_900_000_000_000},
        {"type": "t", "payload": {}, "run_at": -1},
        {"type": "t", "payload": {}, "timeout": 0},
        {"type": "t", "payload": {}, "tags": "x"},
        {"type": "t", "payload": {}, "tags": [""]},
        {"type": "t", "payload": {}, "tags": ["x"] * 101},
        {"type": "t", "payload": {}, "max_atempts": 3},
        [],
        "t",
        None,
    ],
    ids=str,
)
async def test_a_body_that_is_not_a_job_is_refused(http, app, body):
    import json

    reply = await http("POST", "/v1/jobs", data=json.dumps(body).encode(), Idempotency_Key="k")
    assert reply.status == 422, reply
    assert reply.problem == "invalid"
    assert (await app.stats()).queues == []


async def test_a_follow_up_is_stored_after_the_end(http, app):
    made = (await http.submit("t", {}, on_success="reported", on_dead="alarmed")).json
    [claim] = await app.claim()
    await claim.fail("broken", dead=True)
    await release_of(app).repair()
    [job] = (await app.jobs(task="alarmed")).jobs
    assert (job.payload, job.meta) == ({"*": [made["id"]]}, {"follows": made["id"]})
    assert (await app.jobs(task="reported")).jobs == []


async def test_every_option_reaches_the_job(http, app):
    at = datetime(2035, 5, 5, tzinfo=UTC)
    options = {"max_attempts": 25, "queue": "mail", "priority": -5, "timeout": 9.5, "tags": ["a", "b"]}
    made = (await http.submit("t", {}, run_at=at.isoformat(), **options)).json
    assert made["status"] == "scheduled"
    job = await app.job(made["id"])
    assert (job.max_attempts, job.queue, job.priority, job.timeout, job.tags) == (25, "mail", -5, 9.5, ("a", "b"))
    assert job.run_at == at
    by_epoch = await http.submit("t", {}, run_at=int(at.timestamp()))
    assert by_epoch.json["run_at"] == at.strftime("%Y-%m-%dT%H:%M:%SZ")
    later = (await http.submit("t", {}, delay=60)).json
    assert later["status"] == "scheduled"
    assert (await app.job(later["id"])).state == "scheduled"


async def test_task_options_are_defaults_of_a_submission(http, app):
    app.task(lambda: None, name="mail", queue="mail", max_attempts=3, priority=7)
    plain = (await http.submit("mail")).json
    assert (plain["queue"], plain["max_attempts"], plain["priority"]) == ("mail", 3, 7)
    own = (await http.submit("mail", queue="other", max_attempts=4)).json
    assert (own["queue"], own["max_attempts"], own["priority"]) == ("other", 4, 7)


async def test_a_task_with_a_codec_cannot_be_submitted_as_json(http, app):
    import pickle

    app.task(lambda: None, name="own", codec=pickle)
    assert (await http.submit("own")).status == 422


async def test_a_task_with_the_codec_of_its_app_can_be_submitted_as_json(make_app):
    import pickle

    app = make_app(codec=pickle)

    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    async with serving(app) as http:
        assert (await http.submit("add", {"a": 1, "b": "x"})).status == 422
        id = (await http.submit("add", {"a": 1, "b": 2})).json["id"]
        await work_off(app)
        job = (await http("GET", f"/v1/jobs/{id}")).json
    assert (job["status"], job["result"]) == ("succeeded", 3)


async def test_a_submitted_job_runs(http, app):
    @app.task
    async def add(a: int, b: int) -> int:
        return a + b

    id = (await http.submit("add", {"a": 1, "b": 2})).json["id"]
    await work_off(app)
    job = (await http("GET", f"/v1/jobs/{id}")).json
    assert (job["status"], job["result"], job["attempts"]) == ("succeeded", 3, 1)
    assert job["history"][0]["outcome"] == "succeeded"


async def test_invalid_arguments_of_a_registered_task_are_refused(http, app):
    @app.task
    async def add(a: int, b: int) -> int:
        return a + b

    for payload in ({"a": 1}, {"a": 1, "b": "two"}, {"a": 1, "b": 2, "c": 3}):
        reply = await http.submit("add", payload)
        assert (reply.status, reply.problem) == (422, "invalid")
        every = {"type": "add", "payload": payload, "every": 60}
        assert (await http("PUT", "/v1/schedules/sums", every)).status == 422
    assert (await app.jobs()).jobs == await app.schedules.list() == []


async def test_an_unknown_job_is_404_and_an_impossible_id_422(http):
    for id in (UNKNOWN, f"{UNKNOWN}.0", UNKNOWN.upper()):
        reply = await http("GET", f"/v1/jobs/{id}")
        assert reply.status == 404
        assert reply.problem == "job-not-found"
    for id in ("not-an-id", UNKNOWN[:-1], f"{UNKNOWN}.", f"{UNKNOWN}x", "a%00b", "x" * 513):
        reads = [("GET", path) for path in ("", "/logs", "/output", "/explain")]
        for method, path in (*reads, ("POST", "/cancel"), ("DELETE", "")):
            reply = await http(method, f"/v1/jobs/{id}{path}")
            assert reply.status == 422
            assert reply.problem == "invalid"


async def test_any_valid_id_can_be_read_and_operated(http, app):
    for id in ("a/b", "batch", "ü x", "100%", "a?b#c"):
        await app.submit("t", b"{}", json=True, id=id)
        from urllib.parse import quote

        path = f"/v1/jobs/{quote(id, safe='')}"
        assert (await http("GET", path)).json["id"] == id
        assert (await http("POST", f"{path}/cancel")).json["cancelled"] is True
        assert (await http("DELETE", path)).status == 204
        assert (await http("GET", path)).status == 422, "it is gone, and is not an id as Holdfast makes them"


async def test_listing_paginates_and_filters(http):
    for number in range(5):
        await http.submit("a" if number % 2 else "b", {"n": number}, queue="q", tags=[f"t{number}"])
    await http.submit("a", {}, queue="other", delay=60)
    seen, path = [], "/v1/jobs?queue=q&limit=2"
    while True:
        page = (await http("GET", path)).json
        assert len(page["jobs"]) <= 2
        seen += [job["payload"]["n"] for job in page["jobs"]]
        if page["cursor"] is None:
            break
        path = f"/v1/jobs?queue=q&limit=2&cursor={page['cursor']}"
    assert seen == [4, 3, 2, 1, 0]
    assert len((await http("GET", "/v1/jobs?type=b")).json["jobs"]) == 3
    assert len((await http("GET", "/v1/jobs?tag=t3")).json["jobs"]) == 1
    assert len((await http("GET", "/v1/jobs?state=scheduled")).json["jobs"]) == 1
    assert len((await http("GET", "/v1/jobs?state=pending&state=scheduled")).json["jobs"]) == 6


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=201", "limit=x", "limit=1&limit=2", "state=nope", "cursor=nope", "cursor=" + "x" * 300, "tagg=1",
     "queue=", "queue=%00", "queue=%ff", "token=hf_x_y", "&".join(f"state=queued{n}" for n in range(200))],
)  # fmt: skip
async def test_an_invalid_query_is_refused(http, query):
    reply = await http("GET", f"/v1/jobs?{query}")
    assert reply.status == 422, reply
    assert reply.problem == "invalid"


async def test_a_batch_stores_or_refuses_each_job_individually(http, app):
    await http.submit("t", {"a": 1}, "known")
    jobs = [
        {"type": "t", "payload": {"n": 1}, "key": "new"},
        {"type": "t", "payload": {"a": 1}, "key": "known"},
        {"type": "t", "payload": {"a": 2}, "key": "known"},
        {"type": "t", "payload": []},
        {"type": "shell", "payload": {"command": "id"}, "key": "s"},
        {"type": "t", "payload": {"n": 2}, "key": "newer", "queue": "mail"},
    ]
    reply = await http("POST", "/v1/jobs/batch", {"jobs": jobs})
    assert reply.status == 200
    answers = reply.json["jobs"]
    assert [one["status"] for one in answers] == [201, 200, 422, 422, 403, 201]
    kinds = [one["problem"]["type"].rpartition(":")[2] if "problem" in one else "" for one in answers]
    assert kinds == ["", "", "key-conflict", "invalid", "shell-refused", ""]
    assert (await app.job(answers[5]["id"])).queue == "mail"
    assert sum((await app.stats()).counts.values()) == 3


@pytest.mark.parametrize("jobs", [[], [{"type": "t", "payload": {}, "key": "k"}] * 1001, {}, None])
async def test_a_batch_has_1_to_1000_jobs(http, jobs):
    assert (await http("POST", "/v1/jobs/batch", {"jobs": jobs})).status == 422


async def test_cancel_retry_and_delete(http, app):
    id = (await http.submit("t")).json["id"]
    cancelled = (await http("POST", f"/v1/jobs/{id}/cancel")).json
    assert cancelled["cancelled"] is True
    assert cancelled["job"]["status"] == "cancelled"
    assert (await http("POST", f"/v1/jobs/{id}/cancel")).json["cancelled"] is False
    assert (await http("POST", f"/v1/jobs/{id}/retry")).json["status"] == "queued"
    [claim] = await app.claim()
    for method, path in (("DELETE", f"/v1/jobs/{id}"), ("POST", f"/v1/jobs/{id}/retry")):
        reply = await http(method, path)
        assert reply.status == 409
        assert reply.problem == "invalid-state"
        assert reply.json["job_id"] == id
    assert (await http("POST", f"/v1/jobs/{id}/cancel")).json["job"]["cancel_requested"] is True
    await claim.release()
    assert (await http("DELETE", f"/v1/jobs/{id}")).status == 204
    for method, path in (("DELETE", ""), ("POST", "/cancel"), ("POST", "/retry"), ("GET", "/output")):
        assert (await http(method, f"/v1/jobs/{id}{path}")).problem == "job-not-found"


async def test_dead_letters_are_listed_and_retried(http, app):
    @app.task
    async def bad() -> None:
        raise Discard("no use")

    ids = [(await http.submit("bad", queue=queue)).json["id"] for queue in ("a", "a", "b")]
    await work_off(app, queues=["a", "b"])
    dead = (await http("GET", "/v1/dlq")).json["jobs"]
    assert {job["id"] for job in dead} == set(ids)
    assert dead[0]["error"] == "Discard: no use" or "no use" in dead[0]["error"]
    assert len((await http("GET", "/v1/dlq?queue=b")).json["jobs"]) == 1
    again = (await http("POST", f"/v1/dlq/{ids[0]}/retry")).json
    assert (again["status"], again["attempts"]) == ("queued", 0)
    assert (await http("POST", f"/v1/dlq/{ids[0]}/retry")).problem == "invalid-state"
    assert (await http("POST", f"/v1/dlq/{UNKNOWN}/retry")).problem == "job-not-found"
    assert (await http("POST", "/v1/dlq/retry", {"queue": "b"})).json == {
        "matched": 1,
        "retried": 1,
        "skipped": 0,
        "reasons": {},
    }
    done = (await http("POST", "/v1/dlq/retry")).json
    assert (done["matched"], done["retried"], done["reasons"]) == (1, 1, {})
    assert (await http("GET", "/v1/dlq")).json == {"jobs": [], "cursor": None}


async def test_output_is_read_from_a_position(http, app):
    id = (await http.submit("t")).json["id"]
    empty = await http("GET", f"/v1/jobs/{id}/output")
    assert (empty.status, empty.content, empty.headers["holdfast-next-position"]) == (200, b"", "0")
    [claim] = await app.claim()
    record = await parts_of(app).handles.record(id)
    for at, data in ((0, b"<b>one</b>\n"), (11, "zwölf\n".encode())):
        await parts_of(app).claims.note(
            Note(id, record.seq, record.fence, record.token, output=Output(at, data, 1 << 20))
        )
    whole = await http("GET", f"/v1/jobs/{id}/output")
    assert whole.content.decode() == "<b>one</b>\nzwölf\n"
    assert whole.headers["content-type"].startswith("text/plain")
    assert whole.headers["x-content-type-options"] == "nosniff"
    assert whole.headers["holdfast-next-position"] == "18"
    rest = await http("GET", f"/v1/jobs/{id}/output?position=3")
    assert rest.content.startswith(b"one")
    assert (await http("GET", f"/v1/jobs/{id}/output?position=18")).content == b""
    assert (await http("GET", f"/v1/jobs/{id}/output?position=-1")).status == 422
    await claim.release()


async def test_lines_of_a_task_are_read_with_level_and_time(http, app):
    @app.task(name="speak", max_attempts=1)
    async def speak(ctx: Context) -> None:
        print("printed")
        ctx.log.warning("logged\nin two lines")

    id = (await http.submit("speak")).json["id"]
    assert (await http("GET", f"/v1/jobs/{id}/logs")).json == {"lines": [], "position": 0}
    await work_off(app)
    page = (await http("GET", f"/v1/jobs/{id}/logs")).json
    assert [(line["level"], line["attempt"], line["text"]) for line in page["lines"]] == [
        ("info", 1, "printed"), ("warning", 1, "logged\nin two lines"),
    ]  # fmt: skip
    first, second = page["lines"]
    assert first["time"] <= second["time"]
    assert (await http("GET", f"/v1/jobs/{id}/logs?position={second['position']}")).json["lines"] == [second]
    assert (await http("GET", f"/v1/jobs/{id}/logs?position={page['position']}")).json["lines"] == []
    text = await http("GET", f"/v1/jobs/{id}/output")
    lines = text.content.decode().splitlines()
    assert [line[21:] for line in lines[:2]] == ["info     printed", "warning  logged"]
    assert text.headers["holdfast-next-position"] == str(page["position"])
    assert (await http("GET", f"/v1/jobs/{UNKNOWN}/logs")).status == 404


async def test_lines_of_an_attempt_that_began_during_the_request_have_its_number(http, app, monkeypatch):
    @app.task(name="speak")
    async def speak() -> None:
        print("printed")

    id = (await http.submit("speak")).json["id"]
    store = session_of(app).store
    output = store.output

    async def output_of_a_run(*given, **options):
        monkeypatch.undo()
        await work_off(app)
        return await output(*given, **options)

    monkeypatch.setattr(store, "output", output_of_a_run)
    page = (await http("GET", f"/v1/jobs/{id}/logs")).json
    assert [(line["attempt"], line["text"]) for line in page["lines"]] == [(1, "printed")]


async def test_plain_output_is_read_as_lines(http, app):
    id = (await http.submit("t")).json["id"]
    [claim] = await app.claim()
    record = await parts_of(app).handles.record(id)
    note = Note(id, record.seq, record.fence, record.token, output=Output(0, b"one\nhalf", 1 << 20))
    await parts_of(app).claims.note(note)
    page = (await http("GET", f"/v1/jobs/{id}/logs")).json
    assert ([line["text"] for line in page["lines"]], page["position"]) == (["one"], 4)
    assert (await http("GET", f"/v1/jobs/{id}/logs?position=4")).json == {"lines": [], "position": 4}
    await claim.complete()
    assert [line["text"] for line in (await http("GET", f"/v1/jobs/{id}/logs?position=4")).json["lines"]] == ["half"]


async def test_a_full_queue_is_429_and_retry_safe(http, app):
    await app.config.set("max_depth", 1)
    assert (await http.submit("t")).status == 201
    reply = await http.submit("t")
    assert reply.status == 429
    assert reply.problem == "queue-full"
    assert reply.json["retry_safe"] is True
    assert reply.headers["retry-after"] == "1"


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/dlq"])
async def test_a_page_is_limited_in_bytes_and_its_cursor_continues(http, app, monkeypatch, path):
    sizes = [10, 900_000, 10, 10, 900_000, 900_000, 2_000_000, 10] + [10] * 40
    await app.config.set("max_payload", 3_000_000)
    for number, size in enumerate(sizes):
        await app.submit("t", b'{"x": "%s"}' % (b"x" * size), json=True, id=f"j{number}")
    if path == "/v1/dlq":
        for claim in await app.claim(limit=len(sizes)):
            await claim.fail("no", dead=True)
    monkeypatch.setattr(limits, "PAGE_BYTES", 1_900_000)
    pages, cursor = [], ""
    while cursor is not None:
        reply = await http("GET", f"{path}?limit=45" + (f"&cursor={cursor}" if cursor else ""))
        pages.append([job["id"] for job in reply.json["jobs"]])
        assert len(reply.content) < 2_000_000 or pages[-1] == ["j6"]
        cursor = reply.json["cursor"]
    assert [id for page in pages for id in page] == [f"j{number}" for number in reversed(range(len(sizes)))]
    assert [len(page) for page in pages] == [41, 1, 4, 2]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"run_at": 5},
        {"run_at": NOW + 5_000_000},
        {"delay": 3.5, "queue": "mail", "priority": -3, "timeout": 2.5, "max_attempts": 9},
        {"key": "k", "tags": ("a", "b"), "meta": {"a": {"b": 1}}},
        {"extra": write(Internal(expires_in=60.0))},
        {"extra": write(Internal(expires_at=NOW + 7))},
        {"limit_key": limit(concurrency=1).limit_key("send", None, b"{}")},
    ],
)
def test_as_stored_equals_the_view_of_the_record(options):
    job = NewJob("id", "send", payload=b'{"to":"ada"}', **{"queue": "default", **options})
    shown = msgspec.json.decode(msgspec.json.encode(as_stored(job, NOW)))
    assert shown == msgspec.json.decode(msgspec.json.encode(job_out(job_view(new_record(job, 7, NOW)))))
