"""The routes of tokens. Only the answer to a new token has its secret.

1. A token is created with a token, and has at most its roles, scope and time. A request without a token, on an open
   loopback server or behind the login of an application, creates none: the token would outlast that access.
2. Revoking a token revokes those that were created with it.
3. A token can be restricted later, not extended. Its label stays: it names the sender in the audit log.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from ..client.search import Scope
from . import scoping, tokens
from .call import Answer, Call, json, nothing
from .endpoint import Endpoint
from .problems import FORBIDDEN, OUTCOME_UNKNOWN, TOKEN_NOT_FOUND, Refused
from .shapes import Body, Name, Span
from .tokens import LABEL_LIMIT, NAMES_LIMIT, ROLES, TokenInfo, UnknownToken

Role = Literal["read", "submit", "work", "operate"]
Roles = Annotated[list[Role], Meta(min_length=1, max_length=len(ROLES))]
Names = Annotated[tuple[Name, ...], Meta(max_length=NAMES_LIMIT)]


class NewToken(Body, kw_only=True):
    """A token to create: at most with the roles, the scope and the time of the token of the request."""

    EXAMPLE: ClassVar[dict[str, Any] | None] = {"roles": ["submit"], "label": "the shop", "expires_in": 7776000}
    roles: Roles
    label: Annotated[str, Meta(max_length=LABEL_LIMIT)] = ""
    """Its name in the audit log, after the name of the sender."""
    expires_in: Span | None = None
    """Null: as long as the token of the request."""
    queues: Names = ()
    """Names, with `*` as wildcard. Empty: those of the token of the request. `tasks` likewise."""
    tasks: Names = ()


class EditToken(Body, kw_only=True):
    """How to restrict a token; omitted fields stay."""

    roles: Roles | None = None
    """Some of its roles."""
    expires_in: Span | None = None
    """It can expire earlier, not later."""


class TokenCreated(msgspec.Struct):
    """A new token. This answer alone has the token itself."""

    id: str
    token: str


class TokensOut(msgspec.Struct):
    """All tokens, oldest first."""

    tokens: list[TokenInfo]
    current: str
    """The id of the token of the request; empty: HOLDFAST_TOKEN, or none."""
    creatable: list[str]
    """The roles that the sender may give to a new token; empty: it may create none."""


async def list_tokens(call: Call) -> Answer:
    """All tokens, without their secrets."""
    scope = call.access.scope
    found = [
        one
        for one in await tokens.tokens(call.parts.records)
        if scope is None or scope.contains(Scope(one.queues, one.tasks))
    ]
    creatable = [] if call.access.anonymous else [role for role in ROLES if role in call.roles]
    return json(TokensOut(found, call.access.token, creatable))


async def create_token(call: Call, body: NewToken) -> Answer:
    """Create a token, and return it. It cannot be read again."""
    if call.access.anonymous:
        raise Refused(
            FORBIDDEN, "no token was created: this request has no token itself; use `holdfast token create` instead"
        )
    if missing := set(body.roles) - call.roles:
        raise Refused(
            FORBIDDEN,
            f"no token was created: the token of this request lacks the roles {', '.join(sorted(missing))};"
            " leave them out, or use another token",
        )
    made = await tokens.create(
        call.parts.records,
        body.roles,
        body.label,
        expires=body.expires_in,
        queues=body.queues,
        tasks=body.tasks,
        made_with=call.access.token,
        created_by=call.access.who,
    )
    await call.service.auth.keyring.refresh(at_once=True)
    return json(TokenCreated(made.split("_")[1], made), 201)


async def edit_token(call: Call, id: str, body: EditToken) -> Answer:
    """Restrict a token: fewer roles, or an earlier end."""
    records = call.parts.records
    await tokens.edit(records, id, roles=body.roles, expires=body.expires_in)
    await call.service.auth.keyring.refresh(at_once=True)
    for one in await tokens.tokens(records):
        if one.id == id:
            return json(one)
    raise UnknownToken(id)  # revoked since


async def revoke_token(call: Call, id: str) -> Answer:
    """Revoke a token, and those that were created with it."""
    await tokens.revoke(call.parts.records, id)
    await call.service.auth.keyring.refresh(at_once=True)
    return nothing()


def endpoints() -> list[Endpoint]:
    one, changed = "/v1/tokens/{id}", (TOKEN_NOT_FOUND, OUTCOME_UNKNOWN)
    return [
        Endpoint("GET", "/v1/tokens", "operate", list_tokens, {200: TokensOut}, within=scoping.listed),
        Endpoint(
            "POST",
            "/v1/tokens",
            "operate",
            create_token,
            {201: TokenCreated},
            (OUTCOME_UNKNOWN,),
            scoping.made_token,
        ),
        Endpoint("PATCH", one, "operate", edit_token, {200: TokenInfo}, changed, scoping.token),
        Endpoint("DELETE", one, "operate", revoke_token, {204: None}, changed, scoping.token),
    ]
