"""How a job is enqueued: every option once, checked before anything is stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from ..codec.meta import checked_meta
from ..core.errors import InvalidJob
from ..core.retry import Backoff
from ..core.validation import (
    checked_at,
    checked_attempts,
    checked_backoff,
    checked_expires,
    checked_name,
    checked_once,
    checked_priority,
    checked_seconds,
    checked_tags,
    checked_text,
)
from .limits import Limit, given_limit


class Options(msgspec.Struct, frozen=True):
    """How a job is enqueued; None is the task's, then the app's own."""

    queue: str | None = None
    priority: int | None = None
    max_attempts: int | None = None
    timeout: float | None = None
    retry: Backoff | None = None
    delay: float = 0.0
    run_at: int | None = None
    key: str | None = None
    id: str | None = None
    tags: tuple[str, ...] = ()
    meta: Mapping[str, Any] = {}
    connection: Any = None
    once: str | None = None
    window: float = 0.0
    replace: bool = False
    put_off: float | None = None
    """Seconds from its creation within which a replaced job is due, however often it is replaced."""
    expires_in: float | None = None
    expires_at: int | None = None
    limit: Limit | None = None

    def changed(
        self,
        *,
        queue: str | None = None,
        priority: int | None = None,
        max_attempts: int | None = None,
        timeout: float | timedelta | None = None,
        retry: Backoff | None = None,
        delay: float | timedelta | None = None,
        at: datetime | None = None,
        key: str | None = None,
        id: str | None = None,
        tags: Sequence[str] | None = None,
        meta: Mapping[str, Any] | None = None,
        connection: Any = None,
        once: str | float | timedelta | None = None,
        replace: bool | None = None,
        debounce: float | timedelta | None = None,
        debounce_max: float | timedelta | None = None,
        expires: float | timedelta | datetime | None = None,
        limit: Limit | None = None,
    ) -> Options:
        """These options with some set anew, each checked before anything is stored."""
        if replace is not None and type(replace) is not bool:
            raise InvalidJob(f"replace= is True or False, not {replace!r:.100}")
        if delay is not None and at is not None:
            raise InvalidJob("give either delay= or at=, not both")
        if debounce is not None:
            if delay is not None or at is not None or replace is False or once is not None:
                raise InvalidJob("debounce= says itself when the job is due and what its key means: leave out the rest")
            delay, replace = checked_seconds(debounce, "debounce", positive=True), True
        elif debounce_max is not None:
            raise InvalidJob("debounce_max= goes with debounce=")
        if once is not None:
            once, window = checked_once(once)
        else:
            once, window = ("queued", 0.0) if replace else (self.once, self.window)
        late = (self.expires_in, self.expires_at) if expires is None else checked_expires(expires)
        made = Options(
            queue=self.queue if queue is None else checked_name(queue, "queue"),
            priority=self.priority if priority is None else checked_priority(priority),
            max_attempts=self.max_attempts if max_attempts is None else checked_attempts(max_attempts),
            timeout=self.timeout if timeout is None else checked_seconds(timeout, "timeout", positive=True),
            retry=self.retry if retry is None else checked_backoff(retry),
            delay=(self.delay if at is None else 0.0) if delay is None else checked_seconds(delay, "delay"),
            run_at=(self.run_at if delay is None else None) if at is None else checked_at(at),
            key=self.key if key is None else checked_text(key, "key"),
            id=self.id if id is None else checked_text(id, "id"),
            tags=self.tags if tags is None else checked_tags(tags),
            meta=self.meta if meta is None else checked_meta(meta),
            connection=self.connection if connection is None else connection,
            once=once,
            window=window,
            replace=self.replace if replace is None else replace,
            put_off=self.put_off if debounce_max is None else checked_seconds(debounce_max, "debounce_max"),
            expires_in=late[0],
            expires_at=late[1],
            limit=self.limit if limit is None else given_limit(limit),
        )
        made.check()
        return made

    def check(self) -> None:
        """Refuse options that contradict each other."""
        if self.replace and self.key is None:
            raise InvalidJob("replace= and debounce= need key=, the name of the job that is to be replaced")
        if self.replace and self.once != "queued":
            raise InvalidJob("replace= means a job that still waits, so once= can only be 'queued' beside it")
        if self.replace and self.connection is not None:
            raise InvalidJob("replace= and debounce= cannot be part of your own transaction: leave out connection=")
        if self.put_off is not None and self.put_off < self.delay:
            raise InvalidJob(f"debounce_max= ({self.put_off:g} s) is shorter than debounce= ({self.delay:g} s)")
        late = self.expires_in is not None and self.run_at is None and self.expires_in <= self.delay
        if late or (self.expires_at is not None and self.run_at is not None and self.expires_at <= self.run_at):
            raise InvalidJob("it would expire before it is due: expires= must be later than delay= or at=")
