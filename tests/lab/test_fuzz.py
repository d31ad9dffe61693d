"""Fuzzing: whatever bytes, JSON or request comes, the answer is a value or one of our errors; never another, never 500.

HOLDFAST_EXAMPLES makes it longer.
"""

from __future__ import annotations

import asyncio
import json
import os
from datetime import datetime, timedelta
from decimal import Decimal
from uuid import UUID

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast import Holdfast, HoldfastError, InvalidJob, Worker
from holdfast.cli import spec
from holdfast.codec import check_json, decode_value, encode_value, shown
from holdfast.core import cron as schedule
from holdfast.core.errors import ConfigError, UnknownTask
from holdfast.core.job import TERMINAL
from holdfast.store.open import open_store
from holdfast.testing import ManualClock
from support.http import serving

EXAMPLES = int(os.environ.get("HOLDFAST_EXAMPLES", "100"))
fuzzed = settings(
    max_examples=EXAMPLES,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large],
)

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.binary(max_size=20)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8) | st.integers(), inner, max_size=4),
    max_leaves=12,
)
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
as_json = plain.map(lambda value: json.dumps(value).encode())


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """JSON with some bytes put in, taken out or changed."""
    data = bytearray(draw(as_json))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 2))] = draw(st.binary(max_size=2))
    return bytes(data)


anything = st.binary(max_size=80) | damaged() | as_json


# -- the codec


@fuzzed
@given(value=values)
def test_a_value_travels_and_comes_back_the_same_or_is_refused_by_name(value):
    try:
        data = encode_value(value, exact=True)
    except InvalidJob:
        return
    back = decode_value(data)
    assert back == value
    assert encode_value(back) == data


@fuzzed
@given(data=anything, kind=st.sampled_from([dict, list[int], str, float, datetime, timedelta, Decimal, UUID, bytes]))
def test_bytes_are_a_value_of_their_type_or_refused(data, kind):
    try:
        value = decode_value(data, kind)
    except InvalidJob:
        return
    assert isinstance(value, getattr(kind, "__origin__", kind)) or (kind is float and isinstance(value, int))


@fuzzed
@given(data=anything, codec=st.sampled_from(["json", "bytes", "custom", "cloudpickle", "?"]))
def test_whatever_a_store_contains_can_be_shown(data, codec):
    msgspec.json.encode(shown(data, codec))


@fuzzed
@given(data=anything)
def test_json_is_checked_or_refused(data):
    try:
        check_json(data)
    except InvalidJob:
        return
    assert isinstance(json.loads(data), dict)


def typed(a: int, b: list[str] = [], *rest: float, when: datetime | None = None, **more: Decimal) -> None: ...  # noqa: B006


@fuzzed
@given(data=anything)
def test_a_payload_becomes_a_call_or_is_refused(data):
    app = Holdfast("memory://")
    task = app.task(typed)
    try:
        args, kwargs = task.decode(data)
    except HoldfastError:
        return
    task.encode(args, kwargs)


@settings(fuzzed, max_examples=max(10, EXAMPLES // 10))
@given(payloads=st.lists(anything, min_size=1, max_size=5))
def test_a_worker_survives_whatever_payload_its_jobs_have(payloads):
    async def run() -> None:
        async with Holdfast("memory://", max_attempts=1, refusal_timeout=0) as app:

            @app.task
            async def work(a: int, b: str = "") -> int:
                return a

            ids = [(await app.submit("work", data)).id for data in payloads]
            await Worker(app, until_idle=True).run()
            states = [(await app.job(id)).state for id in ids]
            assert set(states) <= TERMINAL, states
            assert await (await work.enqueue(3)).job()

    asyncio.run(run())


# -- the command line


known = st.sampled_from([*spec.KNOWN, "unknown"])


@fuzzed
@given(given=st.dictionaries(known, plain, max_size=5))
def test_a_job_as_json_is_a_job_or_one_clear_line(given):
    app = Holdfast("memory://")
    made, refused = None, ""
    try:
        made = spec.call(app, given)
    except (InvalidJob, UnknownTask, ConfigError) as error:
        refused = str(error)
    if made is None:
        assert refused
        assert "\n" not in refused
    else:
        made.task.encode(made.args, made.kwargs)


@fuzzed
@given(data=anything)
def test_a_line_of_a_file_is_an_object_or_refused(data):
    refused = ""
    try:
        assert isinstance(spec.read(data), dict)
    except InvalidJob as error:
        refused = str(error)
    assert "\n" not in refused


# -- cron lines

field = st.text("0123456789*/,-LW#?SUNMON ", max_size=6) | st.sampled_from(["*", "*/5", "0", "1-5", "31", "FEB", "L"])
line = st.lists(field, min_size=1, max_size=7).map(" ".join) | st.text(max_size=12) | st.sampled_from(["@daily", "@"])


@fuzzed
@given(cron=line, tz=st.sampled_from(["UTC", "Europe/Berlin", "Nowhere/Land", ""]), moment=st.integers(0, 2**52))
def test_a_cron_line_is_due_after_any_moment_or_refused(cron, tz, moment):
    try:
        rule = schedule.checked(schedule.Rule(cron=cron, tz=tz))
    except HoldfastError:
        return
    due = schedule.next_after(rule, moment)
    assert due is None or due > moment
    assert schedule.in_words(rule)


# -- URLs


@fuzzed
@given(url=st.text(max_size=40) | st.builds("{}://{}".format, st.sampled_from(["sqlite", "redis", "s3"]), st.text()))
def test_a_url_names_a_store_or_is_refused(url):
    try:
        open_store(url, ManualClock())
    except (ConfigError, HoldfastError):
        return


# -- HTTP


METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH")


def paths() -> st.SearchStrategy[str]:
    id = st.text("abc-%.~$ é", min_size=1, max_size=8)
    whole = st.sampled_from(["/v1/jobs", "/v1/jobs/batch", "/v1/stats", "/v1/queues", "/v1/claims", "/v1/dlq"])
    return whole | st.builds(
        "/v1/{}/{}{}".format,
        st.sampled_from(["jobs", "claims", "queues", "config", "dlq"]),
        id,
        st.sampled_from(["", "/cancel", "/retry", "/output", "/extend", "/complete", "/pause", "/unknown"]),
    )


requests = st.lists(st.tuples(st.sampled_from(METHODS), paths(), anything), min_size=5, max_size=15)


@settings(fuzzed, max_examples=max(5, EXAMPLES // 15))
@given(requests=requests)
def test_no_request_makes_the_service_stumble(requests):
    async def run() -> None:
        async with Holdfast("memory://") as app, serving(app) as http:
            for number, (method, path, body) in enumerate(requests):
                reply = await http(method, path, data=body, Idempotency_Key=f"key-{number}")
                assert reply.status < 500, (method, path, body, reply)
            assert (await http("GET", "/health")).status == 200

    asyncio.run(run())
