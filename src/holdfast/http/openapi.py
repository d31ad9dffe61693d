"""The OpenAPI 3.1 document, generated from the route table and the types that decode requests."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from ..core.validation import KEY_LIMIT
from ..version import __version__
from .endpoint import EVENTS, Endpoint
from .problems import (
    BAD_REQUEST,
    BUSY,
    CONTENT_TYPE,
    FORBIDDEN,
    INVALID,
    STORE_UNAVAILABLE,
    TOO_LARGE,
    TOO_SLOW,
    UNAUTHORIZED,
    WRONG_HOST,
    WRONG_ORIGIN,
    WRONG_TYPE,
    Kind,
    Problem,
)
from .shapes import NewJobInBatch

REF = "#/components/schemas/{name}"
EVERYWHERE = (BAD_REQUEST, WRONG_ORIGIN, WRONG_HOST, INVALID)
GUARDED = (UNAUTHORIZED, FORBIDDEN, STORE_UNAVAILABLE)
WITH_BODY = (TOO_SLOW, TOO_LARGE, WRONG_TYPE, BUSY)
LINKED = ("get_jobs_id", "get_jobs_id_output", "post_jobs_id_cancel", "post_jobs_id_retry", "delete_jobs_id")
"""Operations linked from a submitted job."""
SETTLING = ("extend", "complete", "release", "fail")


def describe(endpoints: Sequence[Endpoint]) -> bytes:
    types = _types(endpoints)
    schemas, components = msgspec.json.schema_components(types, ref_template=REF)
    by_type = dict(zip(types, schemas, strict=True))
    # Jobs of a batch are decoded one by one, so that an invalid one does not affect the others.
    components["Batch"]["properties"]["jobs"]["items"] = by_type[NewJobInBatch]
    components["BatchAnswer"]["properties"]["problem"] = {"anyOf": [by_type[Problem], {"type": "null"}]}
    for kind in types:
        if pairs := getattr(kind, "EITHER", ()):
            components[kind.__name__]["allOf"] = [{"not": _both(*pair)} for pair in pairs]
    paths: dict[str, Any] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, by_type)
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {"title": "Holdfast", "version": __version__, "license": {"name": "MIT", "identifier": "MIT"}},
            "servers": [{"url": "/"}],
            "paths": paths,
            "components": {"schemas": components, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        }
    )


def problems_of(endpoint: Endpoint) -> list[Kind]:
    """All problems that an endpoint can return, sorted by status."""
    kinds = [*EVERYWHERE, *endpoint.problems]
    if endpoint.role is not None or endpoint.path == "/ready":
        kinds += GUARDED if endpoint.role is not None else [STORE_UNAVAILABLE]
    if endpoint.body is not None:
        kinds += WITH_BODY
    return sorted(set(kinds), key=lambda kind: (kind.status, kind.name))


def _types(endpoints: Sequence[Endpoint]) -> list[Any]:
    found: dict[Any, None] = {Problem: None, NewJobInBatch: None}
    for endpoint in endpoints:
        for kind in (endpoint.body, *endpoint.answers.values()):
            if kind is not None and not isinstance(kind, str):
                found[kind] = None
    return list(found)


def _operation(endpoint: Endpoint, by_type: dict[Any, Any]) -> dict[str, Any]:
    name = f"{endpoint.method} {endpoint.path.removeprefix('/v1')}"
    made: dict[str, Any] = {
        "operationId": re.sub(r"\W+", "_", name).strip("_").lower(),
        "summary": endpoint.summary,
        "tags": [endpoint.path.removeprefix("/v1").split("/")[1]],
        "parameters": [*_in_path(endpoint), *_in_query(endpoint), *_in_headers(endpoint)],
        "responses": _responses(endpoint, by_type),
        "security": [] if endpoint.role is None else [{"token": []}],
    }
    if endpoint.role is not None:
        made["description"] = f"Needs the role `{endpoint.role}`."
    if endpoint.body is not None:
        required = any(field.required for field in msgspec.structs.fields(endpoint.body))
        content = {"schema": by_type[endpoint.body]}
        if example := getattr(endpoint.body, "EXAMPLE", None):
            content["example"] = example
        made["requestBody"] = {"required": required, "content": {"application/json": content}}
    return made


def _in_path(endpoint: Endpoint) -> list[dict[str, Any]]:
    text = {"type": "string", "minLength": 1, "maxLength": KEY_LIMIT}
    return [
        {"name": name, "in": "path", "required": True, "schema": text | msgspec.json.schema(kind)}
        for name, kind in endpoint.named.items()
    ]


def _in_query(endpoint: Endpoint) -> list[dict[str, Any]]:
    if endpoint.query is None:
        return []
    fields = msgspec.json.schema(endpoint.query)["$defs"][endpoint.query.__name__]["properties"]
    return [
        {"name": name, "in": "query", "required": False, "schema": _without_null(about)}
        for name, about in fields.items()
    ]


def _in_headers(endpoint: Endpoint) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "header",
            "required": name == "Idempotency-Key",
            "description": what,
            "schema": {"type": "string", "minLength": 1, "maxLength": KEY_LIMIT},
        }
        for name, what in endpoint.headers.items()
    ]


def _responses(endpoint: Endpoint, by_type: dict[Any, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for status, kind in endpoint.answers.items():
        one: dict[str, Any] = {"description": "Done." if kind is None else "The answer."}
        if isinstance(kind, str):
            one["content"] = {kind: {} if kind == EVENTS else {"schema": {"type": "string"}}}
        elif kind is not None:
            one["content"] = {"application/json": {"schema": by_type[kind]}}
        if links := _links(endpoint):
            one["links"] = links
        found[str(status)] = one
    for kind in problems_of(endpoint):
        known = found.setdefault(
            str(kind.status), {"description": "", "content": {CONTENT_TYPE.decode(): {"schema": by_type[Problem]}}}
        )
        known["description"] += f"{', or ' if known['description'] else ''}{kind.title} (`{kind.type}`)"
    return found


def _links(endpoint: Endpoint) -> dict[str, Any]:
    """OpenAPI links from an answer to the next operations."""
    if (endpoint.method, endpoint.path) == ("POST", "/v1/jobs"):
        return {name: {"operationId": name, "parameters": {"id": "$response.body#/id"}} for name in LINKED}
    if (endpoint.method, endpoint.path) == ("POST", "/v1/claims"):
        first = "$response.body#/claims/0"
        proof = {"fence": f"{first}/fence", "token": f"{first}/token"}
        return {
            how: {
                "operationId": f"post_claims_job_{how}",
                "parameters": {"job": f"{first}/job/id"},
                "requestBody": {**proof, "error": "it failed"} if how == "fail" else proof,
            }
            for how in SETTLING
        }
    return {}


def _both(one: str, other: str) -> dict[str, Any]:
    """The schema of an object with two fields that are not null."""
    given = {"not": {"type": "null"}}
    return {"required": [one, other], "properties": {one: given, other: given}}


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a query parameter without null: an absent parameter is null, a present one never."""
    if "anyOf" not in schema:
        return {name: value for name, value in schema.items() if name != "default" or value is not None}
    [kept] = [one for one in schema["anyOf"] if one != {"type": "null"}]
    about = {name: value for name, value in schema.items() if name == "description"}
    return {**kept, **about}
