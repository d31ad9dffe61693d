"""The OpenAPI document: complete, correct, and fuzzed with Schemathesis."""

from __future__ import annotations

import asyncio
import re
import sys

import msgspec
import pytest

from holdfast.app import parts_of
from holdfast.core.job import State
from holdfast.http import failures, sse
from holdfast.http.call import Call
from holdfast.http.problems import KINDS
from support.http import serving

TOKEN = "a-token-for-the-machine"
CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,"
    "response_headers_conformance,unsupported_method,use_after_free,ensure_resource_availability,missing_required_header"
)


async def test_openapi_has_every_route_and_its_role(http):
    document = (await http("GET", "/openapi.json")).json
    assert document["openapi"] == "3.1.0"
    described = {(method.upper(), path) for path, one in document["paths"].items() for method in one}
    assert described == {(one.method, one.path) for one in http.service.listed}
    for endpoint in http.service.listed:
        operation = document["paths"][endpoint.path][endpoint.method.lower()]
        assert operation["summary"]
        assert (operation["security"] == []) == (endpoint.role is None)
        assert {str(status) for status in endpoint.answers} <= set(operation["responses"])
    ids = [one["operationId"] for path in document["paths"].values() for one in path.values()]
    assert len(set(ids)) == len(ids)


async def test_openapi_has_the_fields_of_the_decoders(http):
    schemas = (await http("GET", "/openapi.json")).json["components"]["schemas"]
    job = schemas["NewJob"]
    assert job["required"] == ["type", "payload"]
    assert job["properties"]["type"]["maxLength"] == 128
    assert job["properties"]["payload"]["type"] == "object"
    assert job["additionalProperties"] is False
    assert {"id", "type", "status", "attempts", "max_attempts", "payload", "run_at", "created_at"} <= set(
        schemas["JobOut"]["properties"]
    )
    refs = re.findall(r'"#/components/schemas/(\w+)"', (await http("GET", "/openapi.json")).content.decode())
    assert set(refs) <= set(schemas)


async def test_schemas_have_plain_names_enums_and_rules(http):
    document = (await http("GET", "/openapi.json")).json
    schemas = document["components"]["schemas"]
    assert [name for name in schemas if not re.fullmatch(r"\w+", name)] == []  # generators drop other names
    states = {state.value for state in State}
    query = {one["name"]: one for one in document["paths"]["/v1/jobs"]["get"]["parameters"]}
    assert states | {"pending", "completed"} <= set(query["state"]["schema"]["items"]["enum"])
    assert states <= set(schemas["JobFilter"]["properties"]["state"]["anyOf"][0]["items"]["enum"])
    (key,) = document["paths"]["/v1/config/{key}"]["put"]["parameters"]
    assert {"max_attempts", "lease", "max_retries"} <= set(key["schema"]["enum"])
    assert {"required": ["run_at", "delay"]}.items() <= schemas["NewJob"]["allOf"][0]["not"].items()


async def test_examples_are_valid_and_both_of_a_pair_are_refused(http):
    document = (await http("GET", "/openapi.json")).json
    shown = 0
    for endpoint in http.service.listed:
        if endpoint.body is None or endpoint.body.EXAMPLE is None:
            continue
        body = document["paths"][endpoint.path][endpoint.method.lower()]["requestBody"]["content"]["application/json"]
        assert body["example"] == endpoint.body.EXAMPLE
        msgspec.json.decode(msgspec.json.encode(endpoint.body.EXAMPLE), type=endpoint.body)
        shown += 1
    assert shown >= 8
    job = {"type": "x", "payload": {}}
    headers = {"Idempotency-Key": "both"}
    times = {"delay": 3, "run_at": 4_000_000_000}
    assert (await http("POST", "/v1/jobs", {**job, **times}, **headers)).status == 422
    given = {"action": "cancel", "ids": ["1"], "filter": {"queue": "x"}}
    assert (await http("POST", "/v1/bulk", given)).status == 422
    assert (await http("PUT", "/v1/schedules/x", {**job, "cron": "@daily", "every": 3})).status == 422


def test_every_exception_has_a_problem_type():
    import holdfast
    from holdfast.http.problems import INTERNAL, refused

    inside = {"PartialEnqueue", "JobFailed", "JobCancelled", "ProcessFailed", "MissingExtra", "HoldfastError"}
    for name in holdfast.__all__:
        kind = getattr(holdfast, name)
        if isinstance(kind, type) and issubclass(kind, holdfast.HoldfastError):
            found = next(KINDS[step] for step in kind.__mro__ if step in KINDS)
            assert (found is INTERNAL) == (name in inside), name
    assert refused(holdfast.LeaseLost("id", 3)).kind.status == 409


@pytest.mark.extended
@pytest.mark.timeout(900)
@pytest.mark.parametrize("token", [TOKEN, None], ids=["with a token", "without"])
async def test_fuzzing_finds_no_5xx_and_no_undocumented_response(app, token, tmp_path, monkeypatch):
    claims = parts_of(app).claims
    real = claims.claim_for

    async def soon(*args, wait=0.0, **rest):
        return await real(*args, wait=min(wait, 0.02), **rest)  # else fuzzing takes minutes

    monkeypatch.setattr(claims, "claim_for", soon)

    async def not_any_more(call, role):
        return False

    monkeypatch.setattr(failures, "LONGEST_DELAY", 0.0)  # it sends hundreds of wrong tokens
    monkeypatch.setattr(sse, "COMMENT_EVERY", 0.02)
    monkeypatch.setattr(Call, "still_may", not_any_more)  # streams end as they do when a token is revoked
    async with serving(app, token=TOKEN) as client:
        words = [sys.executable, "-m", "schemathesis.cli", "run", f"{client.url}/openapi.json"]
        words += ["--checks", CHECKS, "--phases", "examples,coverage,fuzzing,stateful", "--max-examples", "10"]
        words += ["--generation-deterministic", "--warnings", "off", "--no-shrink"]
        words += ["--continue-on-failure", "--request-timeout", "10"]
        if token is not None:
            words += ["-H", f"Authorization: Bearer {token}"]
        process = await asyncio.create_subprocess_exec(
            *words, cwd=tmp_path, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        output, _ = await process.communicate()
        assert process.returncode == 0, output.decode()[-6000:]
        assert (await client("GET", "/health")).status == 200
