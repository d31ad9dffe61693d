"""The routes of webhooks. No answer has a signing key: it stays with the processes that have the secret."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from ..core.url import redact
from ..webhooks.service import URL_LIMIT, Webhook
from .call import Answer, Call, json, nothing
from .endpoint import Endpoint
from .problems import OUTCOME_UNKNOWN
from .shapes import Body, Name

Event = Literal["job_succeeded", "job_failed", "job_dead", "job_cancelled", "job_expired"]


class NewWebhook(Body, kw_only=True):
    """A webhook to create or replace."""

    EXAMPLE: ClassVar[dict[str, Any] | None] = {"url": "https://example.com/hook", "events": ["job_dead"]}
    url: Annotated[str, Meta(min_length=1, max_length=URL_LIMIT)]
    events: list[Event] | None = None
    """Null: all."""
    queues: tuple[Name, ...] = ()
    """Empty: all. `tasks` likewise."""
    tasks: tuple[Name, ...] = ()


class WebhookOut(msgspec.Struct):
    """A webhook; passwords in its URL are hidden."""

    name: str
    url: str
    events: tuple[str, ...]
    queues: tuple[str, ...]
    tasks: tuple[str, ...]


class WebhooksOut(msgspec.Struct):
    """All webhooks, sorted by name."""

    webhooks: list[WebhookOut]


async def list_webhooks(call: Call) -> Answer:
    """All webhooks."""
    return json(WebhooksOut([_out(hook) for hook in await call.app.webhooks.list()]))


async def put_webhook(call: Call, name: str, body: NewWebhook) -> Answer:
    """Create or replace a webhook: a signed POST to its URL when a job ends. The server needs HOLDFAST_SECRET."""
    hooks = call.app.webhooks
    await hooks.add(name, body.url, events=body.events, queues=body.queues, tasks=body.tasks, replace=True)
    return json(next(_out(hook) for hook in await hooks.list() if hook.name == name))


async def delete_webhook(call: Call, name: str) -> Answer:
    """Remove a webhook; pending deliveries are discarded."""
    await call.app.webhooks.remove(name)
    return nothing()


def _out(hook: Webhook) -> WebhookOut:
    return WebhookOut(hook.name, redact(hook.url), hook.events, hook.queues, hook.tasks)


def endpoints() -> list[Endpoint]:
    one, unknown = "/v1/webhooks/{name}", (OUTCOME_UNKNOWN,)
    return [
        Endpoint("GET", "/v1/webhooks", "operate", list_webhooks, {200: WebhooksOut}),
        Endpoint("PUT", one, "operate", put_webhook, {200: WebhookOut}, unknown),
        Endpoint("DELETE", one, "operate", delete_webhook, {204: None}, unknown),
    ]
