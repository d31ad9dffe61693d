"""Writing to the log: one put at the next number for all pending requests; a loser's batch is adopted by the winner.

The winner of a number needs one round trip for its next one, a loser two, so losers would starve while the winner has
work. A writer that has lost twice therefore writes its batch to `inbox/` and follows the log. The writer of the last
entry lists the inbox beside its own puts and adds what it finds to its next entry. If none does in time, or none
writes, any writer may write. There is no election: put-if-absent still decides, and a batch that is written twice is
applied once. Writers that alternate lose once each, and need no inbox.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from ...core.clock import Clock, Entropy
from ...core.errors import OutcomeUnknown
from .elapsed_guard import Instant
from .log import FELL_BEHIND, Log, Read, Stale
from .log_format import VERSION, Batched, Entry, Handed, TooNew, decode, encode, inbox_key, log_key
from .protocol import Bucket, NotWritten
from .replica import BATCH_WINDOW, Done, Replica

T = TypeVar("T")

logger = logging.getLogger("holdfast")
PAUSES = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
"""Seconds before each repeat of a failed request; the last one repeats."""
COMPANY_SECONDS = 30.0
"""Seconds after another writer's entry for which the inbox is listed beside every put."""
ALONE = 8
"""Own entries between two listings while no other process writes."""
NEVER = -1e9
"""A time before every other on the monotonic clock, in seconds."""
RIVALRY, LEAD = 2.0, 8
"""Seconds after a lost race, and round trips after another writer's last entry, for which a writer does not try."""
INBOX_ROUNDS = 6
"""Round trips, and up to twice as many, for which a batch waits in the inbox before its writer tries again."""
QUIET = 3
"""The same, while no process writes."""
BEHIND = 3
"""Round trips since the head was known after which a lost put means that this process is behind, not in a race."""
TRIP_MAX = 1.0
"""Seconds: a put that takes longer was repeated or suspended with its process, and is no measure of a round trip."""
ENTRY_BYTES = 4_000_000
"""Bytes of adopted batches in one entry, at most."""


class Writer:
    """Writes batches to the log, one after the other.

    1. `write` returns the outcome of a batch. It repeats without a limit; its caller may stop waiting.
    2. No number is left unresolved: after any answer but success, the number is read.
    3. `adopt` writes batches that others put into the inbox.
    """

    def __init__(self, bucket: Bucket, log: Log, clock: Clock, entropy: Entropy) -> None:
        self._bucket = bucket
        self._log = log
        self._clock = clock
        self._entropy = entropy
        self.name = f"{entropy.token():016x}"
        self._number = 0
        self._outcomes: dict[Replica, Done] = {}
        """The outcomes of the batch that is being written, by replica: only that of the current one counts. A dropped
        replica may have applied an entry that was never part of the log.
        """
        self._adoptable: dict[tuple[str, int], Batched] = {}
        self._time = asyncio.get_running_loop().time  # for pauses; safety uses Instant
        self._company = NEVER
        self._unlisted = 0
        self._at_head = NEVER
        """When this process last knew the head."""
        self._lost_at = self._foreign_at = NEVER
        """When it last lost a race; when it saw the last entry, if another process wrote that."""
        self._winning = False
        self._withdrawals: set[asyncio.Task[None]] = set()
        self._trip = 0.05
        """Seconds that a put takes, about."""

    def applied(self, replica: Replica, done: dict[tuple[str, int], Done]) -> None:
        """Entries were applied: keep the outcome of this writer's batch."""
        self._foreign_at = NEVER if self._winning else self._time()
        for (writer, number), each in done.items():
            if writer != self.name:
                self._company = self._time()
            elif number == self._number:
                self._outcomes[replica] = each

    def _outcome(self) -> Done | None:
        return self._outcomes.get(self._log.replica)

    # -- one batch

    async def write(self, batched: Batched) -> Done:
        """Write a batch. OutcomeUnknown if it may have been applied and its answers cannot be known."""
        self._number += 1
        self._outcomes.clear()
        batched.writer, batched.number = self.name, self._number
        lost, handed, tried = self._would_lose(), False, False
        while True:
            replica = self._log.replica
            try:
                while (done := self._outcome()) is None:
                    self._log.still(replica)  # else the batch may be in a snapshot that another task joined
                    if lost:
                        handed = handed or await self._hand_in(batched)
                        if handed and await self._adopted():
                            self._lost_at = self._time()
                            continue
                    if await self._append([batched, *self._waiting()]):
                        self._lost_at = NEVER
                    elif tried or handed:
                        self._lost_at, lost = self._time(), True
                    elif self._time() - self._at_head > BEHIND * self._trip:
                        await self._patiently(self._catch_up)
                    tried = True  # one loss is no race: another process wrote since the last read
                await self._patiently(self._log.trust)
                self._log.still(replica)  # else the outcome is of a dropped replica
            except Stale:
                await self._join_again(batched, replica)
                continue
            except TooNew as error:
                raise (
                    OutcomeUnknown(f"{error}; the write may have happened: check the store") if handed else error
                ) from None
            except NotWritten as error:
                if handed:
                    raise OutcomeUnknown(
                        f"this process could not write to {self._bucket} ({error.__cause__ or error}), but another"
                        " process may have made the write: check the store before you repeat the call"
                    ) from error
                raise
            if handed:
                withdrawal = asyncio.ensure_future(self._withdraw(batched))
                self._withdrawals.add(withdrawal)
                withdrawal.add_done_callback(self._withdrawals.discard)
            self._outcomes.clear()
            return done

    def _would_lose(self) -> bool:
        """Whether a writer that has won against this one is still writing: a put would lose again."""
        now = self._time()
        return now - self._lost_at < RIVALRY and now - self._foreign_at < LEAD * self._trip

    async def _catch_up(self) -> None:
        await self._log.follow()
        self._at_head = self._time()

    async def _join_again(self, batched: Batched, stale: Replica) -> None:
        """This process fell behind: join the log at its newest snapshot, and check whether the batch was applied."""
        logger.warning(FELL_BEHIND, self._bucket)
        await self._patiently(lambda: self._log.join(stale))
        if self._outcome() is not None:
            return
        last = self._log.replica.writers.get(self.name)
        applied = last is not None and last.number >= batched.number
        if applied or self._log.replica.position - batched.base > BATCH_WINDOW:
            raise OutcomeUnknown(
                f"{self._bucket}: this process was too slow to see whether its write happened; the write may have"
                " happened: check the store before you repeat the call"
            )

    async def _append(self, batches: list[Batched]) -> bool:
        """Try to write the next entry; False if another process wrote it first. Applies it in both cases."""
        replica = self._log.replica
        number = replica.position + 1
        entry = Entry(VERSION, f"{self._entropy.token():016x}", replica.nonce, batches)
        data = encode(entry)
        listing = asyncio.ensure_future(self._list_inbox()) if self._lists() else None
        first_put, began = Instant.of(self._clock), self._time()
        try:
            read = await self._put(replica, number, data)
            self._trip += (min(self._time() - began, TRIP_MAX) - self._trip) / 8
            if read is not None and read.entry.nonce != entry.nonce:
                self._company = self._time()
                self._log.apply(replica, number, read)
                return False
            # Decoded from its bytes, as every other process reads it.
            mine = read or Read(decode(log_key(number), data, Entry), data)
            self._winning = True
            try:
                await self._patiently(lambda: self._log.won(replica, number, mine, first_put))
            finally:
                self._winning = False
            self._at_head = self._time()
            await self._take_in(listing)
            return True
        finally:
            if listing is not None:
                listing.cancel()

    async def _put(self, replica: Replica, number: int, data: bytes) -> Read | None:
        """Create the entry, with repeats; None, or the existing entry (which may be this one)."""
        for attempt, pause in enumerate(pauses()):
            try:
                if await self._bucket.put_if_absent(log_key(number), data):
                    return None
            except Exception as error:  # whatever it is, reading the number shows what happened
                if isinstance(error, NotWritten) and not attempt:  # else an earlier put may still arrive
                    raise
                name = type(error).__name__
                logger.debug("%s: log entry %s is not confirmed, reading it: %s: %s", self._bucket, number, name, error)
            # "Exists" may be our own put, answered late, or a conflict that created nothing: read it.
            read = await self._patiently(lambda: self._log.read(number))
            if read is not None:
                return read
            # Missing: put the same bytes again, once it is certain that no entry was deleted here.
            await self._patiently(lambda: self._log.verify(replica, number))
            await asyncio.sleep(pause)
        raise AssertionError

    # -- the loser's side

    async def _hand_in(self, batched: Batched) -> bool:
        """Write the batch to the inbox; False if that certainly failed, so that no other process can read it."""
        data, unsure = encode(Handed(VERSION, batched)), False
        for pause in pauses():
            try:
                await self._bucket.put_if_absent(inbox_key(batched), data)
            except NotWritten:
                if not unsure:
                    return False
            except Exception as error:  # noqa: BLE001  # drivers raise errors of any type
                name = type(error).__name__
                logger.debug(
                    "%s: the write of %s, a batch for another process to add to the log, was not answered; repeating"
                    " it: %s: %s",
                    self._bucket,
                    inbox_key(batched),
                    name,
                    error,
                )
                unsure = True
            else:
                return True
            await asyncio.sleep(pause)
        raise AssertionError

    async def _adopted(self) -> bool:
        """Follow the log for some round trips; whether the batch that is being written was applied."""
        chance = 1 + self._entropy.fraction()
        until = self._time() + self._trip * INBOX_ROUNDS * chance
        moved = self._time()
        while True:
            before = self._log.replica.position
            await self._patiently(self._catch_up)
            if self._outcome() is not None:
                return True
            if self._log.replica.position != before:
                moved = self._time()
            elif self._time() - moved > self._trip * QUIET * chance:
                return False
            else:
                await asyncio.sleep(max(0.001, self._trip / 2))
            if self._time() >= until:
                return False

    async def _withdraw(self, batched: Batched) -> None:
        with contextlib.suppress(Exception):  # cleaning finds it
            await self._bucket.delete([inbox_key(batched)])

    # -- the winner's side

    async def adopt(self) -> bool:
        """Write batches from the inbox, if this writer wrote the last entry; called when it has no batch to write."""
        waiting = self._waiting() if self._foreign_at == NEVER else []
        try:
            return bool(waiting) and await self._append(waiting)
        except Exception as error:  # noqa: BLE001  # the next read or write gets the error, and raises it
            text = "%s: batches of other processes were not written; those processes retry: %s: %s"
            logger.debug(text, self._bucket, type(error).__name__, error)
            return False

    async def close(self) -> None:
        """Wait for pending deletions."""
        await asyncio.gather(*self._withdrawals, return_exceptions=True)

    def _waiting(self) -> list[Batched]:
        """Batches from the inbox that no entry has yet."""
        writers = self._log.replica.writers
        self._adoptable = {
            place: batched
            for place, batched in self._adoptable.items()
            if (last := writers.get(place[0])) is None or last.number < place[1]
        }
        return list(self._adoptable.values())

    def _lists(self) -> bool:
        """Whether to list the inbox: others use it while this writer writes one entry after the other."""
        self._unlisted += 1
        leads = self._foreign_at == NEVER and self._time() - self._company <= COMPANY_SECONDS
        if not leads and self._unlisted < ALONE:
            return False
        self._unlisted = 0
        return True

    async def _list_inbox(self) -> list[Batched]:
        writers = self._log.replica.writers
        wanted: list[str] = []
        room = ENTRY_BYTES
        for listed in await self._bucket.list("inbox/"):
            writer, _, number = listed.key.removeprefix("inbox/").partition(".")
            last = writers.get(writer)
            if writer != self.name and (last is None or last.number < int(number)) and room > 0:
                room -= listed.size
                wanted.append(listed.key)
        found = await asyncio.gather(*(self._bucket.get(key) for key in wanted))
        return [decode(key, data, Handed).batch for key, data in zip(wanted, found, strict=True) if data is not None]

    async def _take_in(self, listing: asyncio.Future[list[Batched]] | None) -> None:
        if listing is None:
            return
        try:
            for batched in await listing:
                self._adoptable[batched.writer, batched.number] = batched
        except Exception as error:  # noqa: BLE001  # the others wait longer, or write themselves
            name = type(error).__name__
            logger.debug("%s: batches of other processes cannot be listed: %s: %s", self._bucket, name, error)

    async def _patiently(self, work: Callable[[], Awaitable[T]]) -> T:
        """Repeat requests that change nothing until the bucket answers."""
        for pause in pauses():
            try:
                return await work()
            except (Stale, TooNew):
                raise
            except Exception as error:  # noqa: BLE001  # drivers raise errors of any type
                name = type(error).__name__
                logger.debug("%s: a request failed and is repeated: %s: %s", self._bucket, name, error)
                await asyncio.sleep(pause)
        raise AssertionError


def pauses() -> Iterator[float]:
    yield from PAUSES
    while True:
        yield PAUSES[-1]
