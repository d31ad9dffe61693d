"""Requests to the store API are validated by the rules of an app: a token alone is not enough."""

import msgspec
import pytest

from holdfast.core.errors import InvalidJob, PayloadTooLarge
from holdfast.core.operations import Settlement
from holdfast.store.protocol import Batch
from holdfast.testing.build import ask, holder, new_job, succeeded
from holdfast.testing.verbs import claim_one, every, insert


@pytest.mark.parametrize(
    "options",
    [
        {"id": ""},
        {"id": "a\x00b"},
        {"task": "a\x00b"},
        {"task": ""},
        {"queue": ""},
        {"queue": "q" * 129},
        {"payload": b"no json"},
        {"payload": b"[1]"},
        {"priority": 10**6},
        {"tags": ("t" * 100_000,)},
        {"key": ""},
        {"max_attempts": -1},
        {"run_at": -5},
    ],
)
async def test_a_job_that_no_app_would_make_is_refused(store, options):
    job = msgspec.structs.replace(new_job("x"), **options)
    with pytest.raises(InvalidJob):
        await insert(store, job)
    assert await every(store) == []


async def test_a_payload_over_the_servers_limit_is_refused(store):
    with pytest.raises(PayloadTooLarge, match="over max_payload"):
        await insert(store, new_job("x", payload=b'{"a": "' + b"x" * 1024**2 + b'"}'))


async def test_an_invalid_settlement_is_refused(store):
    await insert(store, new_job("x"))
    record = await claim_one(store)
    for fields, said in (
        ({"state": "bogus"}, "job 'x': a claim cannot end in state 'bogus'"),
        ({"state": "running"}, "job 'x': a claim cannot end in state 'running'"),
        ({"outcome": ""}, "job 'x': invalid outcome ''"),
        ({"outcome": "a\nb"}, "job 'x': invalid outcome 'a"),
        ({"crashes": 2**31}, "job 'x': crashes must be from .*; nothing was written"),
        ({"error": "e" * 2**21}, "error"),
    ):
        end = msgspec.structs.replace(succeeded(record), **fields)
        assert isinstance(end, Settlement)
        with pytest.raises(InvalidJob, match=said):
            await store.write(Batch(settles=[end]))
    assert (await store.write(Batch(settles=[succeeded(record)]))).settles == [True]


@pytest.mark.parametrize(
    "fields",
    [
        {"started_at": -(2**62)}, {"lease": 1e18}, {"pid": -1}, {"node": "n" * 1000}, {"release": "r" * 1000},
        {"process": "\0"}, {"memory": -1}, {"cpu": 1e300},
    ],
)  # fmt: skip
async def test_an_invalid_holder_is_refused(store, fields):
    strange = holder("ann", **({"lease": 30.0} | fields))
    for call in (store.heartbeat([strange]), store.write(Batch(asks=[ask(strange)]))):
        with pytest.raises(InvalidJob):
            await call
    assert await store.holders() == []


async def test_unbounded_requests_are_refused(store):
    from holdfast.core.operations import Where

    for call in (
        store.find(Where(), None, 10**9),
        store.expired(10**9),
        store.tidy(10**9),
        store.write(Batch(asks=[ask(limit=10**12)])),
    ):
        with pytest.raises(InvalidJob):
            await call
