"""The heartbeat of a holder, on a thread and with a store of its own."""

import asyncio
import threading

import msgspec
import pytest

from holdfast import StoreUnavailable
from holdfast.client import heartbeat
from holdfast.client.heartbeat import Heartbeat
from holdfast.core.clock import SystemClock
from holdfast.observe.outages import Outages
from holdfast.store.reference.memory import MemoryStore
from holdfast.testing import build
from support.eventually import eventually

LEASE = 0.03
CONTROL = "answering control requests"


class Reported:
    """What a heartbeat reports to its worker; it repeats while `lives` is true."""

    def __init__(self):
        self.known, self.failures, self.lives = [], 0, True

    def after(self, known, heartbeat):
        self.known.append(known)
        return self.lives

    def failed(self):
        self.failures += 1


class Failing(MemoryStore):
    """Fails a number of heartbeats; `hangs` leaves each of them without an answer, `opens_late` as many openings."""

    fails, heartbeats, hangs, opened, opens_late = 0, 0, False, 0, 0

    async def open(self):
        if self.opens_late:
            self.opens_late -= 1
            await asyncio.Event().wait()
        self.opened += 1

    async def close(self):
        self.opened -= 1

    async def heartbeat(self, holders):
        self.heartbeats += 1
        if self.hangs:
            await asyncio.Event().wait()
        if self.heartbeats <= self.fails:
            raise StoreUnavailable("away")
        return await super().heartbeat(holders)


def new_heartbeat(store, reported):
    outages = Outages(SystemClock())
    return Heartbeat(
        store, build.holder("ann", LEASE), lambda: frozenset({"job"}), reported.after, reported.failed, outages=outages
    )


async def test_a_heartbeat_repeats_until_it_is_stopped_and_closes_its_store():
    store, reported = Failing(), Reported()
    one = new_heartbeat(store, reported)
    one.start()
    await eventually(lambda: store.heartbeats >= 3)
    assert [seen.holder.id for seen in await store.holders()] == ["ann"]
    await one.stopped()
    assert not one._thread.is_alive()
    heartbeats = store.heartbeats
    assert (set(reported.known), reported.failures, store.opened) == ({frozenset({"job"})}, 0, 0)
    one.stop()
    assert store.heartbeats == heartbeats


async def test_a_store_that_does_not_open_is_opened_again_before_the_lease_expires(monkeypatch):
    monkeypatch.setattr(heartbeat, "SHORTEST_PATIENCE", LEASE / 3)
    store, reported = Failing(), Reported()
    store.opens_late = 2
    one = new_heartbeat(store, reported)
    one.start()
    await eventually(lambda: store.heartbeats >= 1)
    await one.stopped()
    assert (reported.failures, store.opened) == (2, 0)


async def test_a_heartbeat_that_is_no_longer_wanted_ends_by_itself():
    store, reported = Failing(), Reported()
    reported.lives = False
    one = new_heartbeat(store, reported)
    one.start()
    await eventually(lambda: not one._thread.is_alive())
    assert (store.heartbeats, store.opened) == (1, 0)


async def test_a_heartbeat_that_fails_is_reported_and_sent_again():
    store, reported = Failing(), Reported()
    store.fails = 2
    one = new_heartbeat(store, reported)
    one.start()
    await eventually(lambda: reported.known)
    await one.stopped()
    assert reported.failures == 2
    assert store.heartbeats >= 3


async def test_a_heartbeat_without_an_answer_is_given_up(monkeypatch):
    monkeypatch.setattr(heartbeat, "SHORTEST_PATIENCE", 0.01)
    store, reported = Failing(), Reported()
    store.hangs = True
    one = new_heartbeat(store, reported)
    one.start()
    await eventually(lambda: reported.failures >= 2)
    await one.stopped()
    assert not reported.known


async def test_a_heartbeat_that_cannot_start_says_so(monkeypatch):
    def refuse(main):
        main.close()
        raise OSError(24, "too many open files")

    monkeypatch.setattr(heartbeat.asyncio, "run", refuse)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    one = new_heartbeat(Failing(), Reported())
    with pytest.raises(StoreUnavailable, match="could not start"):
        one.start()
    one.stop()


class Log:
    """Stands for the log of outages."""

    def __init__(self):
        self.said = []

    def failed(self, activity, error):
        self.said.append(("failed", activity, str(error)))

    def worked(self, activity):
        self.said.append(("worked", activity))


@pytest.mark.parametrize(
    ("lease", "patience", "pause", "pause_after_failure"), [(30.0, 10.0, 10.0, 1.0), (9.0, 5.0, 3.0, 0.75)]
)
async def test_how_long_a_heartbeat_may_take_and_when_the_next_one_comes(
    monkeypatch, lease, patience, pause, pause_after_failure
):
    store, reported, received, spans = Failing(), Reported(), Log(), []
    store.fails, timeout = 1, asyncio.timeout

    def noted(seconds):
        spans.append(seconds)
        return timeout(min(seconds, 0.05))

    monkeypatch.setattr(heartbeat.asyncio, "timeout", noted)
    one = Heartbeat(store, build.holder("ann", lease), frozenset, reported.after, reported.failed, outages=received)
    one.start()
    await eventually(lambda: len(reported.known) >= 2)
    await one.stopped()
    opening, *later = spans
    assert opening == patience
    assert later[:5] == pytest.approx([patience, pause_after_failure, patience, pause, patience])
    assert received.said[:2] == [("failed", "heartbeat", "away"), ("worked", "heartbeat")]


async def test_a_heartbeat_without_an_answer_says_how_long_it_was_waited_for(monkeypatch):
    monkeypatch.setattr(heartbeat, "SHORTEST_PATIENCE", 0.02)
    store, reported, received = Failing(), Reported(), Log()
    store.hangs = True
    one = Heartbeat(store, build.holder("ann", LEASE), frozenset, reported.after, reported.failed, outages=received)
    one.start()
    await eventually(lambda: received.said)
    await one.stopped()
    text = "the memory store did not answer the heartbeat of ann within 0.02 s; check the store and the network"
    assert received.said[0] == ("failed", "heartbeat", text)


async def test_stopping_a_heartbeat_waits_until_its_store_is_closed():
    class Slow(Failing):
        async def close(self):
            await asyncio.sleep(0.05)
            await super().close()

    for stop in (Heartbeat.stopped, lambda one: asyncio.to_thread(one.stop)):
        store, reported = Slow(), Reported()
        one = new_heartbeat(store, reported)
        one.start()
        await eventually(lambda reported=reported: reported.known)
        assert store.opened == 1
        await stop(one)
        assert (store.opened, one._thread.is_alive()) == (0, False)


async def test_a_store_that_cannot_be_opened_is_tried_again_and_closed_once():
    class Closed(Failing):
        tries = 0

        async def open(self):
            self.tries += 1
            if self.tries == 1:
                raise StoreUnavailable("not yet")
            await super().open()

    store, reported = Closed(), Reported()
    one = new_heartbeat(store, reported)
    one.start()
    await eventually(lambda: len(reported.known) >= 3)
    await one.stopped()
    assert (store.tries, store.opened, reported.failures) == (2, 0, 1)


class Served:
    """What a heartbeat serves for its worker; each call waits until `released`, if it is `held`."""

    def __init__(self, *, held=False, errors=()):
        self.calls, self.ended, self.stores, self.errors = 0, 0, set(), list(errors)
        self.held, self.released = held, asyncio.Event()

    async def __call__(self, store, _reply):
        self.calls += 1
        self.stores.add(store)
        if self.held:
            await self.released.wait()
        if self.errors:
            raise self.errors.pop(0)
        self.ended += 1


def serving(store, reported, served, received, lease=LEASE):
    holder = build.holder("ann", lease)
    return Heartbeat(store, holder, frozenset, reported.after, reported.failed, outages=received, serve=served)


async def test_requests_are_served_after_each_heartbeat_by_its_store():
    store, served, received = Failing(), Served(), Log()
    one = serving(store, Reported(), served, received)
    one.start()
    await eventually(lambda: served.ended >= 3)
    await one.stopped()
    assert served.calls <= store.heartbeats
    assert served.stores == {store}
    assert {("worked", "heartbeat"), ("worked", CONTROL)} == set(received.said)


async def test_requests_that_arrive_while_others_are_served_are_served_next():
    store, reported, served = Failing(), Reported(), Served(held=True)
    one = serving(store, reported, served, Log(), lease=3600.0)
    one.start()
    await eventually(lambda: served.calls == 1)
    for heartbeats in (2, 3):
        one.soon()
        await eventually(lambda heartbeats=heartbeats: len(reported.known) == heartbeats)
    assert served.calls == 1, "one at a time"
    one._loop.call_soon_threadsafe(served.released.set)
    await eventually(lambda: served.ended == 2)
    await eventually(lambda: one._serving is None)
    assert (len(reported.known), one._serve_again) == (4, False), "nothing has arrived since"
    await one.stopped()


async def test_requests_that_cannot_be_served_do_not_stop_the_heartbeat():
    store, received = Failing(), Log()
    served = Served(errors=[StoreUnavailable("away"), ValueError("not a request")])
    one = serving(store, Reported(), served, received)
    one.start()
    await eventually(lambda: served.ended >= 2)
    await one.stopped()
    control = [said for said in received.said if said[1] == CONTROL]
    assert control[:3] == [
        ("failed", CONTROL, "away"),
        ("failed", CONTROL, "not a request"),
        ("worked", CONTROL),
    ]


async def test_requests_without_an_answer_are_given_up_and_read_again(monkeypatch):
    monkeypatch.setattr(heartbeat, "SHORTEST_PATIENCE", 0.02)
    served, received = Served(held=True), Log()
    one = serving(Failing(), Reported(), served, received)
    one.start()
    await eventually(lambda: served.calls >= 2)
    await one.stopped()
    [first, *_] = [said for said in received.said if said[1] == CONTROL]
    assert first[0] == "failed"
    assert "within 0.02 s" in first[2]


@pytest.mark.parametrize("patience", [0.0, 60.0])
async def test_a_heartbeat_that_stops_serves_the_last_requests_for_a_limited_time(monkeypatch, caplog, patience):
    monkeypatch.setattr(heartbeat, "SERVE_SECONDS", patience)
    store, served = Failing(), Served(held=True)
    one = serving(store, Reported(), served, Log(), lease=3600.0)
    one.start()
    await eventually(lambda: served.calls == 1)
    stopped = asyncio.create_task(one.stopped())
    if patience:
        await eventually(lambda: one._stopping)
        one._loop.call_soon_threadsafe(served.released.set)
    await stopped
    assert (served.ended, store.opened) == (1 if patience else 0, 0)
    assert caplog.records == []


async def test_the_store_is_closed_after_a_request_that_was_cancelled_has_ended(monkeypatch):
    monkeypatch.setattr(heartbeat, "SERVE_SECONDS", 0.2)
    store, reported, at_end = Failing(), Reported(), []
    began = threading.Event()

    async def serve(_store, _reply):
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # such as the rollback of a transaction
            await asyncio.sleep(0)
            at_end.append(store.opened)

    outages = Outages(SystemClock())
    holder = build.holder("ann", 30.0)
    one = Heartbeat(store, holder, frozenset, reported.after, reported.failed, outages=outages, serve=serve)
    one.start()
    await eventually(began.is_set)
    await one.stopped()
    assert (at_end, store.opened) == ([1], 0)


async def test_a_new_description_is_stored_after_a_heartbeat_that_is_under_way_with_the_old_one():
    stored, reported, served = [], Reported(), threading.Event()

    class Slow(MemoryStore):
        """Its second heartbeat is answered only when the test allows it."""

        async def heartbeat(self, holders):
            self.begun = getattr(self, "begun", 0) + 1
            if self.begun == 2:
                second.set()
                await allowed.wait()
            stored.append(holders[0].state)
            return await super().heartbeat(holders)

    async def serve(_store, _reply):
        if served.is_set():
            return
        one.soon()
        await second.wait()
        one.holder = msgspec.structs.replace(one.holder, state="quiet")
        sending = asyncio.ensure_future(one.send_now())
        await asyncio.sleep(0)
        allowed.set()
        await sending
        served.set()

    second, allowed = asyncio.Event(), asyncio.Event()
    outages = Outages(SystemClock())
    holder = build.holder("ann", 30.0)
    one = Heartbeat(Slow(), holder, frozenset, reported.after, reported.failed, outages=outages, serve=serve)
    one.start()
    await eventually(served.is_set)
    await one.stopped()
    assert stored[:3] == ["active", "active", "quiet"]
