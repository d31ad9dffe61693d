"""Webhooks: their records in the store, and the feed that enqueues a delivery for each matching end of a job.

A delivery is a job (task `holdfast.webhook`, queue `webhooks`), retried with backoff and dead after its last attempt.
The process that settles a job enqueues its deliveries after the store has written the end. If that process crashes
between the two writes, no delivery is made. An enqueued delivery is sent at least once.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from ..client.audited import audited
from ..core.errors import ConfigError, HoldfastError
from ..core.job import UNDECODABLE, NewJob
from ..core.retry import Backoff
from ..core.url import redact
from ..core.validation import checked_name, checked_names
from ..observe.actors import note_before
from ..observe.events import Events, JobEvent
from ..store.protocol import Versioned
from ..store.worker_writes import RecordKind, WorkerWrites
from ..views import moment

if TYPE_CHECKING:
    from ..client.records import Records
    from ..client.runtime import Runtime
    from ..client.session import Session

logger = logging.getLogger("holdfast")
KIND, TASK, QUEUE = "webhook", "holdfast.webhook", "webhooks"
WRITES = WorkerWrites(records=(RecordKind(KIND),))
EVENTS = ("job_succeeded", "job_failed", "job_dead", "job_cancelled", "job_expired")
"""Events that a webhook can subscribe to."""
ATTEMPTS, BACKOFF = 12, Backoff(5.0, 2.0, 5.0, 3600.0)
"""Retries spread over about 3.5 hours."""
TIMEOUT = 30.0
"""Run timeout of a delivery in seconds; longer than the timeout of the POST."""
URL_LIMIT = 2000
"""Maximum characters of a webhook's URL."""
MAX_PENDING = 10_000
"""Deliveries waiting in this process to be stored; beyond, they are dropped with an error in the log."""
TRY_AGAIN = 1.0
"""Seconds between attempts to store deliveries."""
CLOSE_TIMEOUT = 10.0
"""Seconds that closing an app waits for pending deliveries to be stored."""


class Webhook(msgspec.Struct, frozen=True, omit_defaults=True):
    """A subscription: URL, events, queues and tasks. Empty queues or tasks: all."""

    name: str
    url: str
    events: tuple[str, ...] = EVENTS
    queues: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()

    def wants(self, event: JobEvent) -> bool:
        return (
            event.name in self.events
            and (not self.queues or event.queue in self.queues)
            and (not self.tasks or event.job_type in self.tasks)
        )


class Webhooks:
    """The webhooks of an app's store."""

    def __init__(self, runtime: Runtime, records: Records) -> None:
        self._runtime = runtime
        self._records = records

    @audited("webhook.add")
    async def add(
        self,
        name: str,
        url: str,
        *,
        events: Sequence[str] | None = None,
        queues: Sequence[str] = (),
        tasks: Sequence[str] = (),
        replace: bool = False,
    ) -> str:
        """Add a webhook; returns the key with which the receiver verifies signatures.

        Other processes apply it within 20 seconds. `replace`: change one that has this name already.
        """
        key = await self.key(name)
        hook = Webhook(
            checked_name(name, "webhook"),
            _checked_url(url, name),
            _checked_events(events, name),
            checked_names(queues, "queue") if queues else (),
            checked_names(tasks, "task") if tasks else (),
        )
        if replace:
            note_before(webhook=next((_shown(kept) for kept in await self.list() if kept.name == name), None))
        new = None if replace else 0
        if not await self._records.put(KIND, name, msgspec.json.encode(hook), new) and hook not in await self.list():
            raise ConfigError(f"webhook {name!r} already exists with other values and was not changed; remove it first")
        return key

    async def list(self) -> list[Webhook]:
        """All webhooks, sorted by name."""
        return read(await self._records.all(KIND))

    @audited("webhook.remove")
    async def remove(self, name: str) -> bool:
        """Remove a webhook; False if it does not exist. Pending deliveries are discarded."""
        kept = (await self._records.all(KIND)).get(name)
        known = kept is not None
        for hook in read({} if kept is None else {name: kept}):
            note_before(webhook=_shown(hook))
        await self._records.put(KIND, checked_name(name, "webhook"), None)
        return known

    async def key(self, name: str) -> str:
        """The signing key of a webhook, derived from the app's secret and never stored."""
        settings = (await self._runtime.opened()).settings
        return "whsec_" + base64.b64encode(signing_key(settings.secret, name)).decode()


class Feed:
    """Subscribes to the events that the store's webhooks need, and enqueues their deliveries."""

    kind = KIND

    def __init__(self, session: Session, events: Events) -> None:
        self._session = session
        self._events = events
        self.hooks: list[Webhook] = []
        self._subscribed: frozenset[str] = frozenset()
        self._sending: set[asyncio.Task[None]] = set()
        self._waiting: list[Callable[[], object]] = []

    def follow(self, records: Mapping[str, Versioned]) -> None:
        """Apply the store's current webhooks."""
        self.hooks = read(records)
        wanted = frozenset(name for hook in self.hooks for name in hook.events)
        for name in self._subscribed - wanted:
            self._events.off(name, self._on_event)
        for name in wanted - self._subscribed:
            self._events.on(name, self._on_event)
        self._subscribed = wanted
        if self.hooks:
            waiting, self._waiting = self._waiting, []
            for callback in waiting:
                callback()

    def on_first_webhook(self, callback: Callable[[], object]) -> None:
        """Call `callback` once the store has a webhook; now if it has one."""
        if self.hooks:
            callback()
        else:
            self._waiting.append(callback)

    async def close(self) -> None:
        """Unsubscribe, and wait up to `CLOSE_TIMEOUT` for pending deliveries to be stored."""
        self.follow({})
        if not self._sending:
            return
        _, left = await asyncio.wait(self._sending, timeout=CLOSE_TIMEOUT)
        for sending in left:
            sending.cancel()
        if left:
            logger.error(
                "webhooks for %d jobs were not sent: the store did not answer before the app closed; check the store",
                len(left),
            )

    def _on_event(self, event: JobEvent) -> None:
        if event.job_type == TASK:
            return
        hooks = [hook for hook in self.hooks if hook.wants(event)]
        if not hooks:
            return
        if not self._session.settings.secret:
            logger.error("webhooks for job %s were not sent: HOLDFAST_SECRET is not set in this process", event.job_id)
            return
        if len(self._sending) >= MAX_PENDING:
            logger.error(
                "webhooks for job %s were not sent: the webhooks of %d other jobs, the maximum, still wait to be"
                " stored; check whether the store answers",
                event.job_id,
                MAX_PENDING,
            )
            return
        sending = self._session.loop.create_task(self._store(hooks, event, self._session.clock.now()))
        self._sending.add(sending)
        sending.add_done_callback(self._sending.discard)

    async def _store(self, hooks: Sequence[Webhook], event: JobEvent, now: int) -> None:
        jobs: list[NewJob] = []
        while True:
            try:
                store = await self._session.identify()
                jobs = jobs or [self._delivery(hook, event, now, store) for hook in hooks]
                await self._session.commit.insert(jobs)
            except HoldfastError as error:
                # Ids and nonces make the insert idempotent, so it is safe to repeat.
                await asyncio.sleep(self._session.outages.failed("storing webhook deliveries", error, TRY_AGAIN))
            else:
                self._session.outages.worked("storing webhook deliveries")
                break
        for job in jobs:
            self._events.created(job)

    def _delivery(self, hook: Webhook, event: JobEvent, now: int, store: str) -> NewJob:
        entropy = self._session.entropy
        message = msgspec.json.encode({"type": event.name, "timestamp": moment(now), "data": event.fields}).decode()
        id = entropy.uuid7(now)
        proof = proof_of(self._session.settings.secret[0], store, id, hook.name, message)
        payload = msgspec.json.encode({"webhook": hook.name, "message": message, "proof": proof})
        return NewJob(
            id, TASK, QUEUE, payload, max_attempts=ATTEMPTS, timeout=TIMEOUT, nonce=entropy.token(), retry=BACKOFF
        )


def read(records: Mapping[str, Versioned]) -> list[Webhook]:
    """Decode webhooks from their records; records that cannot be decoded are skipped."""
    found: list[Webhook] = []
    for _, kept in sorted(records.items()):
        try:
            found.append(msgspec.json.decode(kept.value, type=Webhook))
        except UNDECODABLE:
            continue
    return found


def _shown(hook: Webhook) -> dict[str, Any]:
    """A webhook for the audit log."""
    return msgspec.structs.asdict(hook) | {"url": redact(hook.url)}


def signing_key(secrets: Sequence[str], name: str) -> bytes:
    """The signing key of a webhook, derived from the first secret; ConfigError without a secret."""
    if not secrets:
        raise ConfigError(f"webhook {name!r} needs a secret to sign with: set secret= or HOLDFAST_SECRET")
    return _derived(secrets[0], f"holdfast webhook {name}")


def proof_of(secret: str, store: str, id: str, name: str, message: str) -> str:
    """Proof that a process with the secret made this job: clients that may only enqueue must not obtain signatures.

    It covers the ids of the job and the store, so that a message copied to another job or store is not signed.
    """
    bound = msgspec.json.encode((store, id, name, message)).decode()
    return _derived(secret, "holdfast delivery " + bound).hex()


def _derived(secret: str, text: str) -> bytes:
    return hmac.digest(secret.encode(), text.encode(), hashlib.sha256)


def signature(key: bytes, id: str, timestamp: int, body: bytes) -> str:
    """The signature as standardwebhooks.com specifies it."""
    signed = hmac.digest(key, f"{id}.{timestamp}.".encode() + body, hashlib.sha256)
    return "v1," + base64.b64encode(signed).decode()


def _checked_url(url: Any, name: str) -> str:
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        fine = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and len(url) <= URL_LIMIT
    except ValueError:
        fine = False
        parts = urlsplit("")
    if not fine or not url.isascii() or not url.isprintable() or " " in url:
        raise ConfigError(
            f"webhook {name!r} was not stored: its URL must be http(s)://HOST/… with at most {URL_LIMIT} ASCII"
            " characters"
        )
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise ConfigError(
            f"webhook {name!r} was not stored: its URL must have no user, password or #fragment; receivers verify the"
            " signature instead"
        )
    return url


def _checked_events(events: Iterable[str] | None, name: str) -> tuple[str, ...]:
    chosen = EVENTS if events is None else tuple(events)
    unknown = [each for each in chosen if each not in EVENTS]
    if unknown or not chosen:
        raise ConfigError(
            f"webhook {name!r} was not stored: its events must be one or more of {', '.join(EVENTS)}, not"
            f" {', '.join(unknown) or 'none'}"
        )
    return chosen
