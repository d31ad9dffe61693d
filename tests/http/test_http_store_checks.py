"""Validation of store calls: every invalid field is refused before anything is stored."""

from __future__ import annotations

import base64
import json
import os

import pytest

from holdfast.app import parts_of
from holdfast.http import limits
from holdfast.store import rpc as wire

MANY = 10**30
NUL = "a\0b"


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


JOB = {"id": "bad", "task": "noop", "queue": "default", "payload": b64(b"{}")}
ALL = {"kind": "flow", "name": "bad"}
FLOW = {**JOB, "task": "flow", "waiting_for": ALL, "extra": b64(b'{"flow": "bad", "allow_unfinished": 0}')}
HOLDER = {"id": "n:1:1", "lease": 10.0, "node": "n", "pid": 1, "queues": ["default"]}
CLAIM = {"id": "bad", "seq": 1, "fence": 1, "token": 1}
END = {**CLAIM, "nonce": 1, "state": "succeeded", "outcome": "succeeded", "attempt": 1}
LINE = {"number": 1, "fence": 1, "reset_count": 1, "worker": None, "started_at": 1, "ended_at": 2, "outcome": "failed"}


def patched(**fields):
    return {"changes": [{"id": "bad", "expected_state": "queued", "expected_fence": 0, "patch": fields}]}


BATCHES = [
    *(
        {"inserts": [{**JOB, **wrong}]}
        for wrong in (
            {"extra": b64(b"not json")},
            {"extra": b64(b'{"flow": 5}')},
            {"extra": b64(b'{"flow": "another"}')},
            *({"id": id, "extra": b64(b'{"flow": "f"}')} for id in ("f.", "f.x", "f.٣", "f.1.x", "ff.1")),
            {"extra": b64(b'{"after": [[0, "explode"]]}')},
            {"extra": b64(b'{"expires_at": -5}')},
            {"extra": b64(b'{"after_jobs": [["", "fail"]]}')},
            {"extra": b64(b'{"after_jobs": [["x", "explode"]]}')},
            {"extra": b64(b'{"on_success": 5}')},
            {"extra": b64(b'{"on_dead": {"task": " noop", "queue": "q", "payload": {}}}')},
            {"extra": b64(b'{"on_dead": {"task": "noop", "queue": "", "payload": {}}}')},
            {"extra": b64(b'{"on_dead": {"task": "noop", "queue": "q", "payload": {}, "delay": 1e300}}')},
            {"extra": b64(b'{"on_dead": {"task": "noop", "queue": "q", "payload": {}, "expires_at": -5}}')},
            {"meta": {"a": NUL}},
            {"meta": {"a": [[[]]] * 2, "b": "x" * 3_000_000}},
            {"meta": [1]},
            {"limit_key": {"name": ""}},
            {"limit_key": {"name": NUL}},
            {"limit_key": {"name": "l", "concurrency": -1}},
            {"limit_key": {"name": "l", "concurrency": MANY}},
            {"limit_key": {"name": "l", "burst": 0}},
            {"limit_key": {"name": "l", "interval": 10**15, "burst": 10**6}},
            {"limit_key": {"name": "l", "weight": 101}},
            {"retry": {"base": -1}},
            {"retry": "often"},
            {"unique": "twice"},
            {"window": 1e300},
            {"nonce": -1},
            {"nonce": MANY},
            {"max_depth": MANY},
            {"fingerprint": NUL},
            {"waiting_for": {"kind": "signal", "name": NUL}},
            {"waiting_for": {"kind": "signal", "name": ""}},
            {"waiting_for": {"kind": "odd", "name": "x"}},
            {"waiting_for": {"kind": "unknown", "name": "signal:x"}},
            {"waiting_for": "signal:x"},
            {"id": NUL},
            {"key": "k" * 1000},
            {"task": " noop"},
            {"queue": ""},
            {"codec": NUL},
            {"priority": MANY},
            {"delay": 1e300},
            {"run_at": -1},
            {"max_attempts": -1},
            {"timeout": 0},
            {"tags": [NUL]},
            {"payload": b64(b"[1]")},
        )
    ),
    *(
        {"notes": [{**CLAIM, **wrong}]}
        for wrong in (
            {"saves": MANY},
            {"pid": -1},
            {"meta": {"a": NUL}},
            {"rest": 1e300},
            {"fence": -1},
            {"seq": MANY},
            {"output": {"at": -1, "data": "", "keep": 1}},
        )
    ),
    *(
        {"settles": [{**END, **wrong}]}
        for wrong in (
            {"state": "running"},
            {"state": "odd"},
            {"attempt": MANY},
            {"delay": 1e300},
            {"keep": 1e300},
            {"key_keep": -1e300},
            {"cancelled_keep": 1e300},
            {"crashes": -3},
            {"error": NUL},
            {"traceback": NUL},
            {"waiting_for": {"kind": "signal", "name": NUL}},
            {"outcome": "o" * 100},
            {"key": NUL},
            {"expected_heartbeat": MANY},
            {"nonce": MANY},
        )
    ),
    patched(state="running"),
    patched(state="odd"),
    patched(delay=1e300),
    patched(attempt=MANY),
    patched(attempt=-2),
    patched(crashes=-3),
    patched(reset_count=MANY),
    patched(error=NUL),
    patched(meta={"a": NUL}),
    patched(waiting_for={"kind": "signal", "name": NUL}),
    patched(waiting_for={"kind": "unknown", "name": "signal:x"}),
    patched(extra=b64(b"no json")),
    patched(history=[{**LINE, "number": MANY}]),
    patched(history=[{**LINE, "error": NUL}]),
    patched(history=[LINE] * 51),
    patched(fingerprint=NUL),
    {"changes": [{"id": "bad", "expected_state": "queued", "expected_fence": MANY, "patch": None}]},
    {
        "changes": [
            {"id": "bad", "expected_state": "queued", "expected_fence": 0, "patch": None, "expected_task": "a" * 1000}
        ]
    },
    *(
        {"asks": [{"holder": {**HOLDER, **wrong}, "queues": ["default"], "limit": 1, "token": 1}]}
        for wrong in ({"lease": 0}, {"lease": 1e300}, {"slots": MANY}, {"pid": MANY}, {"kind": NUL}, {"tasks": [NUL]})
    ),
    {"asks": [{"holder": HOLDER, "queues": ["default"], "limit": MANY, "token": 1}]},
    {"asks": [{"holder": HOLDER, "queues": ["default"], "limit": 1, "token": MANY}]},
    {"asks": [{"holder": HOLDER, "queues": [NUL], "limit": 1, "token": 1}]},
]
CALLS = [
    *(("write", [batch]) for batch in BATCHES),
    ("heartbeat", [[{**HOLDER, "lease": -1}]]),
    ("leave", [[NUL]]),
    ("get", [[NUL]]),
    ("expired", [MANY, None]),
    ("expired", [1, NUL]),
    ("tidy", [-1]),
    ("find", [{"queue": NUL}, None, 1]),
    ("find", [{"states": ["odd"]}, None, 1]),
    ("find", [{"finished_before": MANY}, None, 1]),
    ("find", [{}, "no cursor", 1]),
    ("find", [{}, None, MANY]),
    ("output", ["bad", -1, 1]),
    ("output", [NUL, 0, 1]),
    ("transitions", ["é", 1]),
    ("stats_by_minute", [MANY]),
    ("records", [NUL]),
    ("put_record", ["k", NUL, "", None]),
    ("put_record", ["", "n", "", None]),
    ("put_record", ["k", "n", b64(b"x" * 2_000_000), None]),
    ("put_record", ["k", "n", "", MANY]),
    ("leave", [["n:1:1"] * 10_001]),
    ("get", [["bad"] * 10_001]),
    ("heartbeat", [[HOLDER] * 10_001]),
    ("write", [{"inserts": [{**JOB, "id": f"bad{number}"} for number in range(10_001)]}]),
    ("put_record", ["flow:f", "jobs", b64(b"many"), None]),
    ("put_record", ["flow:f", "jobs", b64(b"2"), 0]),
    *(
        ("write", [{"inserts": [{**FLOW, "payload": b64(about)}]}])
        for about in (b"{}", b'{"name": "", "jobs": -1}', b'{"name": "", "jobs": 1001}')
    ),
]


@pytest.mark.parametrize(("method", "arguments"), CALLS, ids=[f"{at}-{method}" for at, (method, _) in enumerate(CALLS)])
async def test_a_call_with_one_wrong_field_is_refused(app, http, method, arguments):
    headers = {wire.PROTOCOL_HEADER: str(wire.PROTOCOL), wire.REQUEST_HEADER: os.urandom(8).hex()}
    reply = await http("POST", f"{wire.PATH}/{method}", data=json.dumps(arguments).encode(), **headers)
    assert reply.status == 422, reply
    assert (await app.jobs()).jobs == []
    assert await parts_of(app).records.all("k") == {}


async def test_a_call_of_very_many_values_is_refused_before_it_is_decoded(app, http, monkeypatch):
    headers = {wire.PROTOCOL_HEADER: str(wire.PROTOCOL)}
    call = f"{wire.PATH}/get"
    assert (await http("POST", call, [["a", "b", "c"]], **headers)).status == 200
    monkeypatch.setattr(limits, "VALUES", 1)
    assert (await http("POST", call, [["a", "b"]], **headers)).status == 200
    reply = await http("POST", call, [["a", "b", "c"]], **headers)
    assert (reply.status, "more than 1 values" in reply.json["detail"]) == (422, True)
