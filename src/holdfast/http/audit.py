"""The routes of the audit log."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from ..client.audit import AuditPage
from ..client.search import TEXT_LIMIT
from ..client.undo import Undone
from . import limits
from .call import Answer, Call, json
from .endpoint import Endpoint
from .problems import OUTCOME_UNKNOWN
from .shapes import Body, Cursor, Limit

Text = Annotated[str, Meta(min_length=1, max_length=TEXT_LIMIT)]


class AuditQuery(Body, kw_only=True):
    """Which actions to list; all given parts must match."""

    action: Text | None = None
    """Its name, such as `bulk.purge`, or the part before the dot."""
    actor: Text | None = None
    """Contained in the actor."""
    about: Text | None = None
    """Contained in the target, or in the ids of the changed jobs."""
    limit: Limit = limits.PAGE_DEFAULT
    cursor: Cursor | None = None


async def list_actions(call: Call, query: AuditQuery) -> Answer:
    """A page of operator actions, newest first: who did what, when, and with which outcome."""
    return json(
        await call.app.audit.list(
            action=query.action, actor=query.actor, about=query.about, limit=query.limit, cursor=query.cursor
        )
    )


async def undo(call: Call, id: str) -> Answer:
    """Undo a pause, or a cancel or retry of jobs that have not started since; what has changed since is left alone."""
    return json(await call.app.audit.undo(id))


def endpoints() -> list[Endpoint]:
    return [
        Endpoint("GET", "/v1/audit", "operate", list_actions, {200: AuditPage}),
        Endpoint("POST", "/v1/audit/{id}/undo", "operate", undo, {200: Undone}, (OUTCOME_UNKNOWN,)),
    ]
