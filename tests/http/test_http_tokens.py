"""Tokens over HTTP: created, restricted and revoked; a token never gives more than the one that created it."""

from __future__ import annotations

import msgspec
import pytest

from holdfast import ConfigError
from holdfast.app import parts_of
from holdfast.client.search import Scope
from holdfast.core.errors import StoreUnavailable
from holdfast.http import tokens
from support.http import serving

TOKEN = "a-token-of-the-environment"


@pytest.fixture
async def closed(app):
    async with serving(app, token=TOKEN) as client:
        yield client


@pytest.fixture
def made(app, closed):
    async def made(*roles, label="", **more):
        token = await tokens.create(parts_of(app).records, roles, label, **more)
        await closed.service.auth.keyring.refresh(at_once=True)  # otherwise it is accepted within seconds
        return token

    return made


def id_of(token):
    return token.split("_")[1]


async def create(closed, token, *roles, **more):
    return await closed("POST", "/v1/tokens", {"roles": roles, **more}, token=token)


async def listed(closed, token=TOKEN):
    return {one["id"]: one for one in (await closed("GET", "/v1/tokens", token=token)).json["tokens"]}


async def status(closed, token, path="/v1/jobs"):
    return (await closed("GET", path, token=token)).status


async def test_a_token_is_created_listed_and_revoked(app, closed):
    reply = await create(closed, TOKEN, "read", label="wall screen", expires_in=3600, queues=["mail"])
    assert (reply.status, reply.headers["cache-control"]) == (201, "no-store")
    token, id = reply.json["token"], reply.json["id"]
    assert id == id_of(token)
    assert await status(closed, token) == 200, "at once"
    answer = await closed("GET", "/v1/tokens", token=TOKEN)
    [one] = answer.json["tokens"]
    assert (one["id"], one["label"], one["roles"], one["queues"]) == (id, "wall screen", ["read"], ["mail"])
    assert (one["created_by"], one["made_with"], one["expired"]) == ("HOLDFAST_TOKEN", "", False)
    assert (answer.json["current"], answer.json["creatable"]) == ("", list(tokens.ROLES))
    secret = token.split("_", 2)[2]
    audit = await closed("GET", "/v1/audit", token=TOKEN)
    [kept] = (await parts_of(app).records.all("token")).values()
    for text in (answer.content, audit.content, kept.value):
        assert secret.encode() not in text
    [entry] = audit.json["entries"]
    assert (entry["action"], entry["actor"], entry["target"]["id"]) == ("token.create", "HOLDFAST_TOKEN", id)
    assert (await closed("DELETE", f"/v1/tokens/{id}", token=TOKEN)).status == 204
    assert await status(closed, token) == 401, "at once"
    assert await listed(closed) == {}


async def test_a_new_token_has_no_role_that_its_creator_lacks(closed, made):
    operator = await made("read", "operate", label="ann")
    assert (await closed("GET", "/v1/tokens", token=operator)).json["creatable"] == ["read", "operate"]
    for roles in (["work"], ["read", "submit"], list(tokens.ROLES)):
        reply = await create(closed, operator, *roles)
        assert (reply.status, reply.problem) == (403, "forbidden"), roles
        assert "lacks the roles" in reply.json["detail"]
    assert len(await listed(closed)) == 1
    assert (await create(closed, operator, "read", "operate")).status == 201
    assert (await create(closed, await made("read", "submit", "work"), "read")).status == 403


async def test_a_new_token_stays_within_the_scope_of_its_creator(closed, made):
    operator = await made("read", "operate", queues=["mail", "pdf-*"], tasks=["report_*"])
    for queues, tasks in (
        (["money"], []), (["mail", "money"], []), (["*"], []), (["ma*"], []), (["pdf*"], []), (["pdf-*", "*"], []),
        ([], ["*"]), ([], ["report*"]), ([], ["*report_*"]), (["mail"], ["charge"]),
    ):  # fmt: skip
        reply = await create(closed, operator, "read", queues=queues, tasks=tasks)
        assert (reply.status, reply.problem) == (403, "forbidden"), (queues, tasks)
    for queues, tasks in (([], []), (["mail"], []), (["pdf-a", "pdf-b*"], ["report_a", "report_*_b"])):
        reply = await create(closed, operator, "read", queues=queues, tasks=tasks)
        assert reply.status == 201
        one = (await listed(closed))[reply.json["id"]]
        assert one["queues"] == (queues or ["mail", "pdf-*"])
        assert one["tasks"] == (tasks or ["report_*"])


@pytest.mark.parametrize(
    ("outer", "inner", "within"),
    [
        (Scope(), Scope(("mail",)), True),
        (Scope(("mail",)), Scope(), False),
        (Scope(("mail",)), Scope(("mail",), ("send",)), True),
        (Scope(("mail",), ("send",)), Scope(("mail",)), False),
        (Scope(("m*l",)), Scope(("m*i*l", "ml")), True),
        (Scope(("m*l",)), Scope(("m*",)), False),
        (Scope(("*",)), Scope(("a", "*")), True),
        (Scope(("a", "b*")), Scope(("b", "a", "b**")), True),
    ],
)
def test_a_scope_contains_another(outer, inner, within):
    assert outer.contains(inner) == within


async def test_a_token_with_a_scope_sees_and_revokes_only_tokens_within_it(closed, made):
    operator = await made("operate", queues=["mail"])
    inside, wider, other = (
        await made("read", queues=["mail"], tasks=["send"]), await made("read"), await made("read", queues=["money"]),
    )  # fmt: skip
    assert set(await listed(closed, operator)) == {id_of(operator), id_of(inside)}
    for token in (wider, other):
        for method, body in (("DELETE", None), ("PATCH", {"expires_in": 1})):
            reply = await closed(method, f"/v1/tokens/{id_of(token)}", body, token=operator)
            unknown = await closed(method, "/v1/tokens/no-such-one", body, token=operator)
            assert (reply.status, reply.problem) == (404, "token-not-found")
            assert reply.content.replace(id_of(token).encode(), b"no-such-one") == unknown.content
    assert (await closed("DELETE", f"/v1/tokens/{id_of(inside)}", token=operator)).status == 204
    assert set(await listed(closed)) == {id_of(operator), id_of(wider), id_of(other)}


async def test_a_token_ends_with_the_one_that_created_it(app, closed, made):
    first = await made("read", "operate", expires=3600)
    second = (await create(closed, first, "read", "operate", expires_in=86_400)).json["token"]
    third = (await create(closed, second, "read")).json["token"]
    beside = (await create(closed, TOKEN, "read")).json["token"]
    found = await listed(closed)
    assert {found[id_of(one)]["expires_at"] for one in (first, second, third)} == {found[id_of(first)]["expires_at"]}
    assert [found[id_of(one)]["made_with"] for one in (second, third)] == [id_of(first), id_of(second)]
    assert (await closed("DELETE", f"/v1/tokens/{id_of(first)}", token=second)).status == 204
    assert [await status(closed, one) for one in (first, second, third, beside)] == [401, 401, 401, 200]
    assert set(await parts_of(app).records.all("token")) == {id_of(beside)}
    entry = (await closed("GET", "/v1/audit?action=token.revoke", token=TOKEN)).json["entries"][0]
    assert entry["target"] == {"id": id_of(first), "revoked_too": sorted([id_of(second), id_of(third)])}


async def test_a_token_whose_creator_was_revoked_meanwhile_is_not_accepted(app, closed, made):
    orphan = await made("read", made_with="0123456789ab")
    assert await status(closed, orphan) == 401
    one, other = await made("read"), await made("read")
    records = parts_of(app).records
    for id, maker in ((id_of(one), id_of(other)), (id_of(other), id_of(one))):  # a damaged store
        kept = msgspec.json.decode((await records.all("token"))[id].value)
        await records.put("token", id, msgspec.json.encode(kept | {"made_with": maker}))
    assert await tokens.tokens(records) == []
    await tokens.revoke(records, id_of(one))
    assert await records.all("token") == {}


async def test_the_audit_log_names_the_creator_of_a_token_before_its_label(closed, made):
    operator = await made("operate", label="mallory")
    named = (await create(closed, operator, "operate", label="ann")).json["token"]
    plain = (await create(closed, named, "operate")).json
    for number, token in enumerate((operator, named, plain["token"])):
        await closed("POST", f"/v1/queues/q{number}/pause", token=token)
    actors = [one["actor"] for one in (await closed("GET", "/v1/audit?action=pause", token=TOKEN)).json["entries"]]
    assert actors == [f"mallory: ann: token {plain['id']}", "mallory: ann", "mallory"]


async def test_a_token_is_restricted_and_never_extended(closed, made):
    token = await made("read", "submit", "operate", expires=3600)
    child = (await create(closed, token, "read", "submit")).json
    path = f"/v1/tokens/{id_of(token)}"
    before = await listed(closed)
    for body in ({"roles": ["read", "work"]}, {"expires_in": 7200}, {"roles": []}, {"roles": ["all"]},
                 {"expires_in": 0}, {"label": "x"}, {"queues": []}):  # fmt: skip
        assert (await closed("PATCH", path, body, token=TOKEN)).status == 422, body
    assert await listed(closed) == before
    done = await closed("PATCH", path, {"roles": ["read", "operate"], "expires_in": 60}, token=TOKEN)
    assert (done.status, done.json["roles"]) == (200, ["read", "operate"])
    assert done.json["expires_at"] < before[id_of(token)]["expires_at"]
    after = await listed(closed)
    assert after[child["id"]]["roles"] == ["read"], "not more than the one that created it"
    assert after[child["id"]]["expires_at"] == done.json["expires_at"]
    body = {"type": "t", "payload": {}}
    assert (await closed("POST", "/v1/jobs", body, token=token, Idempotency_Key="k")).status == 403
    entries = (await closed("GET", "/v1/audit?action=token.edit", token=TOKEN)).json["entries"]
    assert [one["status"] for one in entries] == ["done", "refused", "refused"]
    assert entries[0]["before"]["roles"] == ["read", "submit", "operate"]
    for unknown in ("nope", id_of(token)[:-1]):
        assert (await closed("PATCH", f"/v1/tokens/{unknown}", {"expires_in": 1}, token=TOKEN)).status == 404
        assert (await closed("DELETE", f"/v1/tokens/{unknown}", token=TOKEN)).problem == "token-not-found"
    assert (await closed("DELETE", f"/v1/tokens/{token}", token=TOKEN)).status == 422, "the token instead of its id"


async def test_a_request_without_a_token_creates_none(http, app):
    """An open loopback server: the first token is created by the command."""
    assert (await http("GET", "/v1/tokens")).json == {"tokens": [], "current": "", "creatable": []}
    reply = await http("POST", "/v1/tokens", {"roles": ["read"]})
    assert (reply.status, reply.problem) == (403, "forbidden")
    assert "holdfast token create" in reply.json["detail"]
    assert (await http("GET", "/v1/tokens")).status == 200, "still open"


async def test_the_users_of_an_application_create_no_token(app):
    async with serving(app, unguarded=True) as client:
        assert (await client("GET", "/v1/tokens")).json["creatable"] == []
        assert (await client("POST", "/v1/tokens", {"roles": ["read"]})).problem == "forbidden"
    assert await tokens.tokens(parts_of(app).records) == []


@pytest.mark.parametrize(
    "more",
    [{"roles": []}, {"roles": ["all"]}, {"label": "x" * 101}, {"label": "a\n"}, {"expires_in": -1},
     {"expires_in": 1e300}, {"queues": [""]}, {"queues": ["q"] * 51}, {"tasks": "all"}, {"secret": "mine"}],
    ids=str,
)  # fmt: skip
async def test_an_invalid_token_is_refused(closed, more):
    reply = await closed("POST", "/v1/tokens", {"roles": ["read"], **more}, token=TOKEN)
    assert (reply.status, reply.problem) == (422, "invalid")
    assert await listed(closed) == {}


async def test_the_secret_is_answered_also_if_the_store_stops_after_the_write(closed, monkeypatch):
    async def failing(_):
        raise StoreUnavailable("away")

    monkeypatch.setattr(tokens, "_stored", failing)
    assert (await create(closed, TOKEN, "read")).json["token"].startswith("hf_")


async def test_a_token_cannot_be_given_instead_of_its_id(app):
    for act in (tokens.revoke, tokens.edit):
        with pytest.raises(ConfigError, match="not the token"):
            await act(parts_of(app).records, "hf_0123456789ab_x")
