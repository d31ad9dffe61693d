"""The deploy check of a store behind a server: a token with the role `read` is enough."""

import pytest

from holdfast import Holdfast
from holdfast.app import parts_of
from holdfast.core.clock import SystemClock
from holdfast.core.errors import ConfigError
from holdfast.store.open import open_store
from holdfast.worker.deploy_check import check

CALLS = 600
"""More than two pages."""


@pytest.fixture
def with_token(monkeypatch):
    """Checks the store of a server with the tasks of an app, and one token."""

    async def run(serving, app, token):
        monkeypatch.setenv("HOLDFAST_TOKEN", token)
        return await check(parts_of(app).registry, open_store(serving.url, SystemClock()))

    return run


async def test_a_read_token_is_enough(serve, with_token):
    serving = await serve(
        roles={
            "reading": frozenset({"read"}),
            "working": frozenset({"work", "submit", "operate"}),
            "both": frozenset({"read", "work"}),
        }
    )
    signed = {"cloudpickle": True, "secret": "a long random text"}
    old, new = (Holdfast(f"{serving.app!r}".split("'")[1], **signed) for _ in range(2))

    @old.task
    async def send(order: int) -> None: ...

    @new.task(name="send")
    async def send_text(order: str) -> None: ...

    async with old:
        await old.enqueue_many([send.call(n) for n in range(CALLS)])
        await old.enqueue(lambda: None)
        await old.schedules.put("nightly", send.call(1), cron="0 3 * * *")
    report = await with_token(serving, new, "reading")
    assert (report.checked, report.refused, report.not_checked, report.complete) == (CALLS + 1, CALLS + 1, 1, True)
    assert (await with_token(serving, old, "reading")).refused == 0
    report = await with_token(serving, old, "both")  # pickled calls are only for workers
    assert (report.checked, report.refused, report.not_checked) == (CALLS + 2, 0, 0)
    report = await with_token(serving, Holdfast("memory://"), "reading")
    assert (report.checked, report.refused, report.not_checked) == (CALLS + 2, CALLS + 2, 0)  # no cloudpickle there
    assert set(serving.calls) == {"waiting_calls"}
    with pytest.raises(ConfigError, match="needs a token with the role 'read'"):
        await with_token(serving, old, "working")
    with pytest.raises(ConfigError, match="rejects the token"):
        await with_token(serving, old, "unknown")


async def test_a_page_is_bounded_by_bytes(serve, with_token):
    serving = await serve("memory://")
    old = serving.app

    @old.task
    async def keep(text: str) -> None: ...

    await old.enqueue_many([keep.call("x" * 900_000) for _ in range(12)])
    report = await with_token(serving, old, "any")
    assert (report.checked, report.refused) == (12, 0)
    assert serving.calls.count("waiting_calls") == 3
