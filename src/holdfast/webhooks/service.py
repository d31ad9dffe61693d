"""Webhooks: who is told how jobs end, kept in the store; and the feed that makes a delivery of each end that matters.

A delivery is itself a job (`holdfast.webhook` in the queue `webhooks`): durable, retried with back-off, and dead in the
end where nobody takes it. Whoever settles a job enqueues its deliveries, right after the store has written the end: if
that process dies in the moment between the two, nobody is told. What was enqueued is delivered at least once.
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

from ..core.errors import ConfigError, HoldfastError
from ..core.job import UNDECODABLE, NewJob
from ..core.retry import Backoff
from ..core.validation import checked_name, checked_names
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
"""What a webhook can be told of."""
ATTEMPTS, BACKOFF = 12, Backoff(5.0, 2.0, 5.0, 3600.0)
"""Over three hours and a half."""
TIMEOUT = 30.0
"""Seconds of a delivery's run, beyond the POST's own limit."""
URL_LIMIT = 2000
"""Characters of a webhook's URL."""
MOST_WAITING = 10_000
"""Deliveries that wait in this process while the store does not answer; more are given up, and said so."""
TRY_AGAIN = 1.0
"""Seconds before deliveries that could not be stored are stored again."""
LAST_WORDS = 10.0
"""Seconds that closing an app waits for deliveries to be stored."""


class Webhook(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where to send what. Without queues or tasks: those of all."""

    name: str
    url: str
    events: tuple[str, ...] = EVENTS
    queues: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()

    def wants(self, event: JobEvent) -> bool:
        """Whether it is to be told of this."""
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

    async def add(
        self,
        name: str,
        url: str,
        *,
        events: Sequence[str] | None = None,
        queues: Sequence[str] = (),
        tasks: Sequence[str] = (),
    ) -> str:
        """Tell this URL how jobs end; the key that its receiver checks signatures with.

        Others take notice within ten seconds.
        """
        key = await self.key(name)
        hook = Webhook(
            checked_name(name, "webhook"),
            _checked_url(url),
            _checked_events(events),
            checked_names(queues, "queue") if queues else (),
            checked_names(tasks, "task") if tasks else (),
        )
        if not await self._records.put(KIND, name, msgspec.json.encode(hook), 0) and hook not in await self.list():
            raise ConfigError(f"there is another webhook {name!r} already; remove it first")
        return key

    async def list(self) -> list[Webhook]:
        """Every webhook, by name."""
        return read(await self._records.all(KIND))

    async def remove(self, name: str) -> bool:
        """Send nothing more there; False where there was none. What was to be sent is discarded."""
        known = name in await self._records.all(KIND)
        await self._records.put(KIND, checked_name(name, "webhook"), None)
        return known

    async def key(self, name: str) -> str:
        """The key that a webhook's deliveries are signed with, made from the app's secret; the store never has it."""
        settings = (await self._runtime.opened()).settings
        return "whsec_" + base64.b64encode(signing_key(settings.secret, name)).decode()


class Feed:
    """Listens for what the store's webhooks want to be told of, and to nothing where there are none."""

    kind = KIND

    def __init__(self, session: Session, events: Events) -> None:
        self._session = session
        self._events = events
        self.hooks: list[Webhook] = []
        self._heard: frozenset[str] = frozenset()
        self._sending: set[asyncio.Task[None]] = set()
        self._waiting: list[Callable[[], object]] = []

    def follow(self, records: Mapping[str, Versioned]) -> None:
        """The store's webhooks, as they are now."""
        self.hooks = read(records)
        wanted = frozenset(name for hook in self.hooks for name in hook.events)
        for name in self._heard - wanted:
            self._events.off(name, self._told)
        for name in wanted - self._heard:
            self._events.on(name, self._told)
        self._heard = wanted
        if self.hooks:
            waiting, self._waiting = self._waiting, []
            for tell in waiting:
                tell()

    def once_there_are_any(self, tell: Callable[[], object]) -> None:
        """Call this when there is a webhook; at once where there is."""
        if self.hooks:
            tell()
        else:
            self._waiting.append(tell)

    async def close(self) -> None:
        """Listen no more, and see what was heard stored."""
        self.follow({})
        if not self._sending:
            return
        _, left = await asyncio.wait(self._sending, timeout=LAST_WORDS)
        for sending in left:
            sending.cancel()
        if left:
            logger.error("the ends of %d jobs are told nobody: the store does not answer", len(left))

    def _told(self, event: JobEvent) -> None:
        if event.job_type == TASK:
            return
        hooks = [hook for hook in self.hooks if hook.wants(event)]
        if not hooks:
            return
        if not self._session.settings.secret:
            logger.error("the end of job %s is told nobody: this process has no HOLDFAST_SECRET", event.job_id)
            return
        if len(self._sending) >= MOST_WAITING:
            logger.error("the end of job %s is told nobody: too many deliveries wait for the store", event.job_id)
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
                # Their ids and nonces make it safe to send them again, whatever became of the first time.
                await asyncio.sleep(self._session.outages.failed("webhooks", error, TRY_AGAIN))
            else:
                self._session.outages.worked("webhooks")
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
            id,
            TASK,
            QUEUE,
            payload,
            max_attempts=ATTEMPTS,
            timeout=TIMEOUT,
            nonce=entropy.token(),
            retry=BACKOFF,
        )


def read(records: Mapping[str, Versioned]) -> list[Webhook]:
    """Webhooks from their records; what cannot be read is left out, never fatal."""
    found: list[Webhook] = []
    for _, kept in sorted(records.items()):
        try:
            found.append(msgspec.json.decode(kept.value, type=Webhook))
        except UNDECODABLE:
            continue
    return found


def signing_key(secrets: Sequence[str], name: str) -> bytes:
    """A webhook's own key, of the first secret; ConfigError without one to make it from."""
    if not secrets:
        raise ConfigError("webhooks are signed with keys made from the app's secret: set secret= or HOLDFAST_SECRET")
    return _derived(secrets[0], f"holdfast webhook {name}")


def proof_of(secret: str, store: str, id: str, name: str, message: str) -> str:
    """That this very job was made by whoever has the secret: else all who may enqueue could have anything signed.

    With the job's id and the store's, since a message that somebody copied into a job of their own, or of another
    store, would be signed as a new one.
    """
    bound = msgspec.json.encode((store, id, name, message)).decode()
    return _derived(secret, "holdfast delivery " + bound).hex()


def _derived(secret: str, text: str) -> bytes:
    return hmac.digest(secret.encode(), text.encode(), hashlib.sha256)


def signature(key: bytes, id: str, timestamp: int, body: bytes) -> str:
    """By the rules of standardwebhooks.com, so that receivers can use a library."""
    signed = hmac.digest(key, f"{id}.{timestamp}.".encode() + body, hashlib.sha256)
    return "v1," + base64.b64encode(signed).decode()


def _checked_url(url: Any) -> str:
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        fine = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and len(url) <= URL_LIMIT
    except ValueError:
        fine = False
        parts = urlsplit("")
    if not fine or not url.isascii() or not url.isprintable() or " " in url:
        raise ConfigError(f"a webhook's URL is http(s)://HOST/… of at most {URL_LIMIT} characters")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise ConfigError("a webhook's URL has no user, password or #fragment: the signature says who sent it")
    return url


def _checked_events(events: Iterable[str] | None) -> tuple[str, ...]:
    chosen = EVENTS if events is None else tuple(events)
    unknown = [name for name in chosen if name not in EVENTS]
    if unknown or not chosen:
        raise ConfigError(f"a webhook is told of {', '.join(EVENTS)}; not of {', '.join(unknown) or 'nothing'}")
    return chosen
