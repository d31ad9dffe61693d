"""Writing to the log: one put at the next number for everything that waits; the loser's batch is adopted.

Losing is what needs care. The winner of a number needs one round trip for its next, a loser two, so losers would starve
for as long as the winner has work. A writer that has lost twice therefore hands its batch in, at `inbox/`, and follows
the log. Whoever wrote last lists the inbox beside its own puts and takes in what it finds. If nobody does in time, or
nobody writes, anyone may write. There is no election: put-if-absent still decides, and a batch that comes twice is
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
from .elapsed_guard import Moment
from .log import Log, Read, Stale
from .replica import BATCH_WINDOW, Done, Replica
from .seam import Bucket, NotWritten
from .wire import VERSION, Batched, Entry, Handed, TooNew, decode, encode, inbox_key, log_key

T = TypeVar("T")

logger = logging.getLogger("holdfast")
PAUSES = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
"""Seconds before a request that failed is repeated; the last goes on."""
COMPANY_SECONDS = 30.0
"""Seconds after another writer's entry for which the inbox is listed beside every put."""
ALONE = 8
"""Own entries between two listings where there was no other."""
NEVER = -1e9
"""Seconds: a moment before every other, on the monotonic clock."""
RIVALRY, LEAD = 2.0, 8
"""Seconds after a lost race, and round trips after another's last entry, for which a writer lets that other write."""
INBOX_ROUNDS = 6
"""Round trips, and up to twice as many, for which a batch waits in the inbox before its writer tries again."""
QUIET = 3
"""The same, where nobody writes."""
BEHIND = 3
"""Round trips after which a process that lost is not losing a race, but behind."""
ENTRY_BYTES = 4_000_000
"""Adopted batches of one entry, at the most."""


class Writer:
    """Gets batches into the log, one after the other.

    1. `write` returns what became of a batch. It repeats for ever: only its caller's patience ends.
    2. No number is left unresolved: any answer but success is looked up, by reading the number.
    3. `adopt` takes in what others handed in.
    """

    def __init__(self, bucket: Bucket, log: Log, clock: Clock, entropy: Entropy) -> None:
        self._bucket = bucket
        self._log = log
        self._clock = clock
        self._entropy = entropy
        self.name = f"{entropy.token():016x}"
        self._number = 0
        self._outcomes: dict[Replica, Done] = {}
        """What became of the batch that is being written, by the state in which: only the log's own counts, once it is
        there. One that was given up may have been told of an entry that was never part of the log.
        """
        self._adoptable: dict[tuple[str, int], Batched] = {}
        self._time = asyncio.get_running_loop().time  # for pauses; what must be right has Moments
        self._company = NEVER
        self._unlisted = 0
        self._at_head = NEVER
        """When this process last knew the head."""
        self._lost_at = self._foreign_at = NEVER
        """When it last lost a race; when it saw the last entry, if that was another's."""
        self._winning = False
        self._withdrawals: set[asyncio.Task[None]] = set()
        self._trip = 0.05
        """Seconds that a put takes, about."""

    def applied(self, replica: Replica, done: dict[tuple[str, int], Done]) -> None:
        """Entries were applied: keep what is ours."""
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
        """Get a batch applied. OutcomeUnknown where it may have been, and its answers cannot be known."""
        self._number += 1
        self._outcomes.clear()
        batched.writer, batched.number = self.name, self._number
        lost, handed, tried = self._would_lose(), False, False
        while True:
            replica = self._log.replica
            try:
                while (done := self._outcome()) is None:
                    self._log.still(replica)  # else the batch may be in what another task took
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
                        await patiently(self._catch_up)
                    tried = True  # once is no race: another wrote while this process did not look
                await patiently(self._log.trust)
                self._log.still(replica)  # else what was told before does not count
            except Stale:
                await self._join_again(batched, replica)
                continue
            except TooNew as error:
                raise OutcomeUnknown(str(error)) if handed else error from None
            except NotWritten as error:
                if handed:
                    raise OutcomeUnknown(f"{error}; another process may have made the write") from error
                raise
            if handed:
                withdrawal = asyncio.ensure_future(self._withdraw(batched))
                self._withdrawals.add(withdrawal)
                withdrawal.add_done_callback(self._withdrawals.discard)
            self._outcomes.clear()
            return done

    def _would_lose(self) -> bool:
        """Whether another writer is at it right now, against whom this one has lost: then it does not even try."""
        now = self._time()
        return now - self._lost_at < RIVALRY and now - self._foreign_at < LEAD * self._trip

    async def _catch_up(self) -> None:
        await self._log.follow()
        self._at_head = self._time()

    async def _join_again(self, batched: Batched, stale: Replica) -> None:
        """Away for too long: take the log from its newest snapshot, and see there whether the batch was applied."""
        logger.warning("this process fell behind the log of %s and reads it again", self._bucket)
        await patiently(lambda: self._log.join(stale))
        if self._outcome() is not None:
            return
        last = self._log.replica.writers.get(self.name)
        applied = last is not None and last.number >= batched.number
        if applied or self._log.replica.position - batched.base > BATCH_WINDOW:
            raise OutcomeUnknown(f"{self._bucket}: this process fell behind the log; the write may have happened")

    async def _append(self, batches: list[Batched]) -> bool:
        """Try to write the next entry; False where another was there first. Either way it is applied."""
        replica = self._log.replica
        number = replica.position + 1
        entry = Entry(VERSION, f"{self._entropy.token():016x}", replica.nonce, batches)
        data = encode(entry)
        listing = asyncio.ensure_future(self._list_inbox()) if self._lists() else None
        first_put, began = Moment.of(self._clock), self._time()
        try:
            read = await self._put(replica, number, data)
            self._trip += (self._time() - began - self._trip) / 8
            if read is not None and read.entry.nonce != entry.nonce:
                self._company = self._time()
                self._log.apply(replica, number, read)
                return False
            # As everybody else will read it, not as it was before it was written down.
            mine = read or Read(decode(log_key(number), data, Entry), data)
            self._winning = True
            try:
                await patiently(lambda: self._log.won(replica, number, mine, first_put))
            finally:
                self._winning = False
            self._at_head = self._time()
            await self._take_in(listing)
            return True
        finally:
            if listing is not None:
                listing.cancel()

    async def _put(self, replica: Replica, number: int, data: bytes) -> Read | None:
        """Create the entry, whatever it takes; None, or the entry that is there (which may be this one)."""
        for attempt, pause in enumerate(pauses()):
            try:
                if await self._bucket.put_if_absent(log_key(number), data):
                    return None
            except Exception as error:  # whatever it was, reading the number says what happened
                if isinstance(error, NotWritten) and not attempt:  # else an earlier put may still come
                    raise
                logger.debug("writing log entry %s failed: %s: %s", number, type(error).__name__, error)
            # "Exists" may be our own put, answered late, or a conflict that left nothing behind: look.
            read = await patiently(lambda: self._log.read(number))
            if read is not None:
                return read
            # Not there: the same bytes again, once it is sure that nothing was cleaned away here.
            await patiently(lambda: self._log.verify(replica, number))
            await asyncio.sleep(pause)
        raise AssertionError

    # -- the loser's side

    async def _hand_in(self, batched: Batched) -> bool:
        """Leave the batch for others to write; False where it surely could not be, and nobody can know of it."""
        data, unsure = encode(Handed(VERSION, batched)), False
        for pause in pauses():
            try:
                await self._bucket.put_if_absent(inbox_key(batched), data)
            except NotWritten:
                if not unsure:
                    return False
            except Exception as error:  # noqa: BLE001  # drivers raise what they like
                logger.debug("writing a batch to the inbox failed: %s: %s", type(error).__name__, error)
                unsure = True
            else:
                return True
            await asyncio.sleep(pause)
        raise AssertionError

    async def _adopted(self) -> bool:
        """Follow the log for a while; whether the batch that is being written was applied."""
        chance = 1 + self._entropy.fraction()
        until = self._time() + self._trip * INBOX_ROUNDS * chance
        moved = self._time()
        while True:
            before = self._log.replica.position
            await patiently(self._catch_up)
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
        """With nothing to write of one's own, and the last entry being one's own: write what others have handed in."""
        waiting = self._waiting() if self._foreign_at == NEVER else []
        try:
            return bool(waiting) and await self._append(waiting)
        except Exception as error:  # noqa: BLE001  # whoever looks or writes next meets it, and can be told
            logger.debug("writing batches from the inbox failed: %s: %s", type(error).__name__, error)
            return False

    async def close(self) -> None:
        """Wait for what is still on its way."""
        await asyncio.gather(*self._withdrawals, return_exceptions=True)

    def _waiting(self) -> list[Batched]:
        """What others have handed in and nobody has written yet."""
        writers = self._log.replica.writers
        self._adoptable = {
            place: batched
            for place, batched in self._adoptable.items()
            if (last := writers.get(place[0])) is None or last.number < place[1]
        }
        return list(self._adoptable.values())

    def _lists(self) -> bool:
        """Whether somebody may have handed in: losers do, to a writer that writes one entry after the other."""
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
        except Exception as error:  # noqa: BLE001  # others wait a little longer, or write for themselves
            logger.debug("listing the inbox failed: %s: %s", type(error).__name__, error)


def pauses() -> Iterator[float]:
    yield from PAUSES
    while True:
        yield PAUSES[-1]


async def patiently(work: Callable[[], Awaitable[T]]) -> T:
    """Do something that changes nothing, until the bucket answers."""
    for pause in pauses():
        try:
            return await work()
        except (Stale, TooNew):
            raise
        except Exception as error:  # noqa: BLE001  # drivers raise what they like
            logger.debug("a request to the bucket failed and is repeated: %s: %s", type(error).__name__, error)
            await asyncio.sleep(pause)
    raise AssertionError
