"""Wrong tokens are logged and delayed; valid ones are not."""

from __future__ import annotations

import asyncio
import logging

import pytest

from holdfast.app import parts_of
from holdfast.core.clock import SystemClock
from holdfast.http import failures, tokens
from holdfast.http.failures import ADDRESSES, FIRST_DELAY, FORGOTTEN, FREE, LONGEST_DELAY, Failures
from holdfast.http.limits import LOG_EVERY
from support.eventually import eventually
from support.http import serving

TOKEN = "a-token-of-the-environment"


class Clock(SystemClock):
    time = 0.0

    def monotonic(self):
        return self.time


def test_delays_grow_per_address():
    seen = Failures(Clock())
    delays = [seen.delay("192.0.2.1") for _ in range(30)]
    assert delays[:FREE] == [0.0] * FREE
    assert delays[FREE:] == sorted(delays[FREE:])
    assert 0 < delays[FREE] < delays[FREE + 1]
    assert delays[-1] == LONGEST_DELAY
    assert seen.delay("192.0.2.2") == 0.0


def test_the_count_of_an_address_is_reset_after_a_while():
    clock = Clock()
    seen = Failures(clock)
    assert [seen.delay("192.0.2.1") for _ in range(30)][-1] == LONGEST_DELAY
    clock.time += FORGOTTEN + 1
    assert seen.delay("192.0.2.1") == 0.0


def test_each_delay_is_twice_the_previous_one():
    seen = Failures(Clock())
    delays = [seen.delay("192.0.2.1") for _ in range(FREE + 4)]
    assert delays[FREE:] == [FIRST_DELAY * factor for factor in (1, 2, 4, 8)]
    assert [seen.delay("192.0.2.1") for _ in range(2000)][-1] == LONGEST_DELAY


def test_an_address_is_tracked_for_its_time():
    clock = Clock()
    seen = Failures(clock)
    for _ in range(FREE):
        seen.delay("192.0.2.1")
    clock.time += FORGOTTEN
    assert seen.delay("192.0.2.1") == FIRST_DELAY
    clock.time += FORGOTTEN
    assert seen.delay("192.0.2.1") == 2 * FIRST_DELAY, "each wrong token extends the time"


def test_an_address_is_logged_again_after_a_while(caplog):
    clock = Clock()
    seen = Failures(clock)
    with caplog.at_level(logging.WARNING, "holdfast.http"):
        for pause in (0.0, LOG_EVERY - 1, 1.0, LOG_EVERY - 1, 0.5, 0.5):
            clock.time += pause
            seen.delay("192.0.2.1")
    counts = [record.args[1] for record in caplog.records]
    assert counts == [1, 3, 6]


def test_the_number_of_tracked_addresses_is_limited():
    seen = Failures(Clock())
    for number in range(ADDRESSES + 10):
        seen.delay(f"address {number}")
    assert len(seen._known) == ADDRESSES
    assert (next(iter(seen._known)), list(seen._known)[-1]) == ("address 10", f"address {ADDRESSES + 9}")
    seen.delay("address 10")
    assert next(iter(seen._known)) == "address 11", "the least recent failures are dropped first"


@pytest.fixture
async def closed(app):
    async with serving(app, token=TOKEN) as client:
        yield client


async def test_wrong_tokens_are_logged_at_a_limited_rate(closed, app, caplog):
    revoked = await tokens.create(parts_of(app).records, ["read"])
    await tokens.revoke(parts_of(app).records, revoked.split("_")[1])
    with caplog.at_level(logging.WARNING, "holdfast.http"):
        for wrong in (revoked, "hf_x_y", "something else"):
            assert (await closed("GET", "/v1/jobs", token=wrong)).status == 401
        assert (await closed("GET", "/v1/jobs", token=None)).status == 401
    [line] = [record.getMessage() for record in caplog.records]
    assert line == (
        "request from 127.0.0.1 refused: wrong token (wrong tokens from this address so far: 1); correct the token of"
        " this client, or block the address"
    )
    assert revoked not in caplog.text


async def test_a_valid_token_is_not_delayed_by_wrong_ones_of_its_address(closed, monkeypatch):
    monkeypatch.setattr(failures, "FREE", 0)
    monkeypatch.setattr(failures, "FIRST_DELAY", 3600.0)
    monkeypatch.setattr(failures, "LONGEST_DELAY", 3600.0)
    guesses = [asyncio.create_task(closed("GET", path, token="wrong")) for path in ("/v1/jobs", "/v1/me") * 3]

    async def waiting():
        return closed.service.auth.failures._waiting == len(guesses)

    await eventually(waiting)
    assert (await closed("GET", "/v1/jobs", token=TOKEN)).status == 200
    assert (await closed("GET", "/v1/jobs", token=None)).status == 401, "who has none guesses nothing"
    assert not any(guess.done() for guess in guesses)
    for guess in guesses:
        guess.cancel()
    await asyncio.gather(*guesses, return_exceptions=True)


async def test_the_number_of_delayed_responses_is_limited(closed, monkeypatch):
    monkeypatch.setattr(failures, "FREE", 0)
    monkeypatch.setattr(failures, "FIRST_DELAY", 3600.0)
    monkeypatch.setattr(failures, "LONGEST_DELAY", 3600.0)
    monkeypatch.setattr(failures, "ANSWERS_WAITING", 2)
    guesses = [asyncio.create_task(closed("GET", "/v1/jobs", token="wrong")) for _ in range(3)]
    done, late = await asyncio.wait(guesses, return_when=asyncio.FIRST_COMPLETED)
    assert [guess.result().status for guess in done] == [401]
    assert closed.service.auth.failures._waiting == 2
    for guess in late:
        guess.cancel()
    await asyncio.gather(*late, return_exceptions=True)


async def test_a_cancelled_delay_frees_its_capacity(monkeypatch):
    monkeypatch.setattr(failures, "FREE", 0)
    monkeypatch.setattr(failures, "FIRST_DELAY", 3600.0)
    monkeypatch.setattr(failures, "LONGEST_DELAY", 3600.0)
    seen = Failures(Clock())
    waiting = asyncio.create_task(seen.throttle("192.0.2.1"))
    await asyncio.sleep(0)
    assert seen._waiting == 1
    waiting.cancel()
    await asyncio.wait([waiting])
    assert seen._waiting == 0
