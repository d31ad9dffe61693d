"""Claims over HTTP: long poll, extend and every settlement, fenced."""

from __future__ import annotations

import asyncio
import pickle

import pytest

from holdfast.app import parts_of
from support.eventually import eventually
from support.http import serving
from support.inside import session_of


async def claim(http, **request):
    reply = await http("POST", "/v1/claims", request)
    assert reply.status == 200, reply
    return reply.json["claims"]


async def settle(http, held, how, **rest):
    body = {"fence": held["fence"], "token": held["token"], **rest}
    return await http("POST", f"/v1/claims/{held['job']['id']}/{how}", body)


async def test_a_claim_returns_the_job_with_fence_and_token(http):
    await http.submit("resize", {"width": 40})
    [held] = await claim(http)
    job = held["job"]
    assert (job["type"], job["payload"], job["status"], job["attempts"]) == ("resize", {"width": 40}, "running", 1)
    assert held["fence"] == 1
    assert isinstance(held["token"], str)
    assert held["lease"] == 300.0
    assert await claim(http) == []


async def test_an_empty_body_claims_one_job_of_the_default_queue(http):
    await http.submit("t")
    assert len((await http("POST", "/v1/claims")).json["claims"]) == 1


async def test_a_claim_filters_by_queue_type_and_limit(http):
    for number in range(4):
        await http.submit("a" if number % 2 else "b", {"n": number}, queue="q")
    found = await claim(http, queues=["other", "q"], types=["a"], limit=10)
    assert [held["job"]["payload"]["n"] for held in found] == [1, 3]


async def test_complete_stores_the_result(http):
    id = (await http.submit("t")).json["id"]
    [held] = await claim(http)
    assert (await settle(http, held, "complete", result={"ok": [1, 2.5, "ü", None]})).status == 204
    job = (await http("GET", f"/v1/jobs/{id}")).json
    assert (job["status"], job["result"]) == ("succeeded", {"ok": [1, 2.5, "ü", None]})


async def test_a_job_shows_its_last_error_and_when_it_was_updated(http):
    created = (await http.submit("t")).json
    assert (created["updated_at"], created["last_error"]) == (created["created_at"], None)
    [held] = await claim(http)
    await settle(http, held, "fail", error="ValueError: no", retry_in=0)
    failed = (await http("GET", f"/v1/jobs/{created['id']}")).json
    assert (failed["last_error"], failed["failures"]) == ("ValueError: no", 1)
    assert failed["updated_at"] == failed["history"][-1]["ended_at"]
    [held] = await claim(http)
    await settle(http, held, "complete")
    done = (await http("GET", f"/v1/jobs/{created['id']}")).json
    assert (done["status"], done["error"], done["last_error"]) == ("succeeded", None, "ValueError: no")
    assert done["updated_at"] == done["finished_at"]


async def test_complete_encodes_the_result_with_the_codec_of_a_registered_task(http, app):
    task = app.task(lambda: None, name="strange", codec=pickle)
    handle = await task.enqueue()
    [held] = await claim(http)
    for _ in range(2):  # the second request repeats a lost response
        assert (await settle(http, held, "complete", result={"ok": 1})).status == 204
    assert (await settle(http, held, "complete", result={"ok": 2})).status == 409
    assert await handle.result(timeout=30) == {"ok": 1}


async def test_fail_retries_until_the_attempts_are_used_then_dead(http):
    id = (await http.submit("t", max_attempts=2)).json["id"]
    [held] = await claim(http)
    assert (await settle(http, held, "fail", error="ValueError: no", retry_in=0)).status == 204
    assert (await http("GET", f"/v1/jobs/{id}")).json["error"] == "ValueError: no"
    [held] = await claim(http)
    assert held["fence"] == 2
    assert (await settle(http, held, "fail", error="again")).status == 204
    assert (await http("GET", f"/v1/jobs/{id}")).json["status"] == "dead"


async def test_fail_with_dead_does_not_retry(http):
    id = (await http.submit("t")).json["id"]
    [held] = await claim(http)
    await settle(http, held, "fail", error="pointless", dead=True)
    assert (await http("GET", f"/v1/jobs/{id}")).json["status"] == "dead"


async def test_release_is_uncharged(http):
    id = (await http.submit("t")).json["id"]
    [held] = await claim(http)
    assert (await settle(http, held, "release")).status == 204
    [held] = await claim(http)
    assert (held["job"]["id"], held["job"]["attempts"], held["fence"]) == (id, 1, 2)
    await settle(http, held, "release", delay=60)
    assert (await http("GET", f"/v1/jobs/{id}")).json["status"] == "scheduled"


async def test_extend_renews_the_lease_and_reports_cancellation(http, app):
    id = (await http.submit("t")).json["id"]
    [held] = await claim(http, lease=30, queues=["default", "mail"])
    before = (await parts_of(app).runtime.store.holders())[0]
    assert (await settle(http, held, "extend")).json == {"lease": 30.0, "cancel_requested": False}
    after = (await parts_of(app).runtime.store.holders())[0]
    assert after.heartbeat > before.heartbeat
    assert (after.holder.lease, after.holder.queues) == (30.0, ("default", "mail"))
    await http("POST", f"/v1/jobs/{id}/cancel")
    assert (await settle(http, held, "extend")).json["cancel_requested"] is True
    await settle(http, held, "release")
    assert (await http("GET", f"/v1/jobs/{id}")).json["status"] == "cancelled"


@pytest.mark.parametrize("how", ["extend", "complete", "fail", "release"])
async def test_a_stale_fence_is_409_lease_lost(http, how):
    rest = {"error": "x"} if how == "fail" else {}
    await http.submit("t")
    [first] = await claim(http)
    await settle(http, first, "release")
    [second] = await claim(http)
    forged = [
        first,
        {**second, "fence": second["fence"] + 1},
        {**second, "token": first["token"]},
    ]
    for stale in forged:
        reply = await settle(http, stale, how, **rest)
        assert reply.status == 409
        assert reply.problem == "lease-lost"
        assert reply.json["job_id"] == first["job"]["id"]
    assert (await settle(http, second, how, **rest)).status in (200, 204)


async def test_a_lost_claim_cannot_be_completed(http, app):
    await http.submit("t")
    [late] = await claim(http, lease=1)
    [held] = await claim(http, wait=10)
    assert held["fence"] == late["fence"] + 1
    assert (await settle(http, late, "complete")).problem == "lease-lost"
    assert (await settle(http, held, "complete")).status == 204


ENDS = {
    "complete": ("complete", {"result": {"a": [1]}}),
    "complete without a result": ("complete", {}),
    "fail": ("fail", {"error": "x" * 5000}),
    "fail for good": ("fail", {"error": "no", "dead": True}),
    "release": ("release", {}),
    "release for later": ("release", {"delay": 60}),
}


@pytest.mark.parametrize("cancelled", [False, True], ids=["", "cancelled meanwhile"])
@pytest.mark.parametrize(("how", "rest"), ENDS.values(), ids=list(ENDS))
async def test_a_settlement_can_be_repeated_after_a_lost_response(http, how, rest, cancelled):
    id = (await http.submit("t")).json["id"]
    [held] = await claim(http)
    if cancelled:
        await http("POST", f"/v1/jobs/{id}/cancel")
    assert (await settle(http, held, how, **rest)).status == 204
    before = (await http("GET", f"/v1/jobs/{id}")).json
    assert (await settle(http, held, how, **rest)).status == 204
    assert (await http("GET", f"/v1/jobs/{id}")).json == before
    others = [{**held, "fence": held["fence"] + 1}, {**held, "token": (await other_token(http))}]
    for other in others:
        assert (await settle(http, other, how, **rest)).problem == "lease-lost"


async def other_token(http) -> str:
    await http.submit("t", queue="other")
    [held] = await claim(http, queues=["other"])
    return held["token"]


async def test_two_concurrent_identical_settlements_both_succeed(http):
    for _ in range(5):
        await http.submit("t")
        [held] = await claim(http)
        replies = await asyncio.gather(*(settle(http, held, "complete", result=1) for _ in range(4)))
        assert [reply.status for reply in replies] == [204] * 4


async def test_a_different_settlement_of_an_ended_claim_is_refused(http):
    await http.submit("t")
    [held] = await claim(http)
    assert (await settle(http, held, "complete", result=1)).status == 204
    for how, rest in (("complete", {"result": 2}), ("fail", {"error": "no"}), ("release", {}), ("extend", {})):
        assert (await settle(http, held, how, **rest)).problem == "lease-lost"


async def test_a_claim_recovered_as_dead_was_not_failed_by_its_holder(http, app):
    await http.submit("t", max_attempts=1)
    [held] = await claim(http, lease=1)

    async def dead() -> bool:
        await app.bulk.recover()
        return (await app.job(held["job"]["id"])).state == "dead"

    await eventually(dead)
    assert (await settle(http, held, "fail", error="no")).problem == "lease-lost"
    assert (await settle(http, held, "fail", error="no", dead=True)).problem == "lease-lost"


def raw_claim(body: bytes) -> bytes:
    head = (
        b"POST /v1/claims HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    )
    return head % len(body) + body


async def test_a_claim_followed_by_a_pipelined_request_does_not_wait(http):
    """Reading is paused then, so a disconnect cannot be seen, and a disconnected client must get no jobs."""
    reader, writer = await asyncio.open_connection(*http.address)
    writer.write(raw_claim(b'{"wait": 60}') + b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    async with asyncio.timeout(10):
        assert b'{"claims":[]}' in await reader.readuntil(b'{"claims":[]}')
        await reader.readuntil(b'"holdfast"}')
    writer.close()


async def test_a_waiting_claim_ends_when_a_pipelined_request_arrives(http):
    _, writer = await asyncio.open_connection(*http.address)
    writer.write(raw_claim(b'{"wait": 60}'))
    await eventually(lambda: http.service.waiting == 1)
    writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    writer.close()  # the client disconnects
    await eventually(lambda: http.service.waiting == 0)
    id = (await http.submit("t")).json["id"]
    assert (await http("GET", f"/v1/jobs/{id}")).json["status"] == "queued"
    [held] = await claim(http)
    assert held["job"]["id"] == id


async def test_ready_jobs_are_claimed_despite_a_pipelined_request(http):
    id = (await http.submit("t")).json["id"]
    reader, writer = await asyncio.open_connection(*http.address)
    writer.write(raw_claim(b'{"wait": 60}') + b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    async with asyncio.timeout(10):
        assert id.encode() in await reader.readuntil(b'"holdfast"}')
    writer.close()


@pytest.mark.parametrize("token", ["", "x", "!!!!", "bnVsbA", "W10", "WzEsLTEsWyJhIl1d", "WzEsMSxbXV0", "a" * 20_000])
async def test_an_invalid_claim_token_is_refused(http, token):
    id = (await http.submit("t")).json["id"]
    reply = await http("POST", f"/v1/claims/{id}/complete", {"fence": 1, "token": token})
    assert reply.status == 422


async def test_an_unknown_job_is_404(http):
    await http.submit("t")
    [held] = await claim(http)
    held["job"]["id"] = "00000000-0000-7000-8000-000000000000"
    assert (await settle(http, held, "complete")).problem == "job-not-found"


@pytest.mark.parametrize(
    "body",
    [{"limit": 0}, {"limit": 101}, {"wait": -1}, {"wait": 61}, {"lease": 0.9}, {"lease": 1e9}, {"queues": []},
     {"queues": ["x"] * 21}, {"queues": "x"}, {"types": []}, {"queue": "x"}],
    ids=str,
)  # fmt: skip
async def test_a_claim_request_out_of_range_is_refused(http, body):
    assert (await http("POST", "/v1/claims", body)).status == 422


async def test_a_long_poll_returns_when_a_job_arrives(http, app):
    waiting = asyncio.create_task(claim(http, wait=30))
    await eventually(lambda: http.service.waiting == 1)
    id = (await http.submit("t")).json["id"]
    [held] = await asyncio.wait_for(waiting, 90)
    assert held["job"]["id"] == id


async def test_a_long_poll_without_jobs_ends_empty(http):
    assert await claim(http, wait=0.05) == []


async def test_a_disconnected_client_claims_no_jobs(http, app):
    waiting = asyncio.create_task(claim(http, wait=30))
    await eventually(lambda: http.service.waiting == 1)
    waiting.cancel()
    await eventually(lambda: http.service.waiting == 0)
    id = (await http.submit("t")).json["id"]
    assert (await app.job(id)).state == "queued"
    assert (await claim(http))[0]["job"]["id"] == id


async def test_a_claim_can_be_ended_through_another_server_of_the_same_store(http, make_app):
    id = (await http.submit("t")).json["id"]
    [held] = await claim(http)
    async with serving(make_app()) as other:
        assert (await settle(other, held, "extend")).status == 200
        assert (await settle(other, held, "complete", result=1)).status == 204
        assert (await http("GET", f"/v1/jobs/{id}")).json["status"] == "succeeded"


@pytest.mark.parametrize("result", [b'"\\u0000"', b"[" * 200 + b"]" * 200, b'"\\ud800"', b"NaN"])
async def test_an_invalid_result_is_refused_and_the_claim_stays_valid(http, result):
    await http.submit("t")
    [held] = await claim(http)
    data = b'{"fence": %d, "token": "%s", "result": %s}' % (held["fence"], held["token"].encode(), result)
    reply = await http("POST", f"/v1/claims/{held['job']['id']}/complete", data=data)
    assert reply.status == 422
    assert (await settle(http, held, "complete")).status == 204


async def test_a_claim_is_not_bound_to_the_server_process(http, app):
    await http.submit("t")
    [held] = await claim(http)
    [holder] = [seen.holder for seen in await session_of(app).store.holders() if seen.jobs]
    assert holder.process == "", "a restart of the server must not end the claims of its clients"
    assert (await settle(http, held, "complete")).status == 204
