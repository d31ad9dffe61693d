"""Any stored byte can be invalid. It harms the one job that it belongs to: all else is claimed, listed and kept."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing

import msgspec
import pytest

from holdfast import Flow, Holdfast, JobNotFound, State
from holdfast.app import parts_of
from holdfast.core.job import NewJob
from holdfast.core.operations import Ask, Holder
from holdfast.core.waiting import Waiting, end_of
from holdfast.store.protocol import Batch
from support.inside import release_of, session_of
from support.workers import work_off, working

# -- how each store is written to by hand


async def in_sqlite(app, id, column, value):
    connection = sqlite3.connect(session_of(app).store.path, timeout=30)
    with connection:
        connection.execute(f"UPDATE holdfast_job SET {column} = ? WHERE id = ?", (value, id))
    connection.close()


async def in_sqlite_as_text(app, id, column, value):
    connection = sqlite3.connect(session_of(app).store.path, timeout=30)
    with connection:
        connection.execute(f"UPDATE holdfast_job SET {column} = CAST(? AS TEXT) WHERE id = ?", (value, id))
    connection.close()


async def in_postgres(app, id, column, value):
    asyncpg = pytest.importorskip("asyncpg")
    url, _, schema = parts_of(app).url.partition("?schema=")
    connection = await asyncpg.connect(url)
    try:
        for table in ("job", "ended"):
            await connection.execute(f"UPDATE {schema}.{table} SET {column} = $1 WHERE id = $2", value, id)
    finally:
        await connection.close()


async def in_redis(app, id, part, change):
    """Change the stored bytes of a job's body (``) or mutable part (`~`)."""
    link, head = (
        session_of(app).store._open(),
        f"{{{session_of(app).store.address.prefix}}}:",
    )
    seq = int((await link.command("HGET", f"{head}ids", id)).partition(b":")[0])
    key, field = f"{head}jobs:{seq // 256}", f"{seq}{part}"
    await link.command("HSET", key, field, change(await link.command("HGET", key, field)))


def with_part(number, value):
    """The body with another value in one of its places."""

    def change(body):
        parts = msgspec.msgpack.decode(body)
        parts[number] = value
        head = body[:22]  # its places are fixed
        return head + b"".join(msgspec.msgpack.encode(part) for part in parts[3:])

    return change


def with_letter(letter, value):
    """The mutable part with another value."""
    return lambda part: msgspec.msgpack.encode(msgspec.msgpack.decode(part or b"\x80") | {letter: value})


GARBAGE = b"\xc1\xff\x00{"
DAMAGES = {
    "sqlite": {
        "tags": (in_sqlite, "tags", "{no json"),
        "meta": (in_sqlite, "meta", "[1]"),
        "meta not UTF-8": (in_sqlite_as_text, "meta", b"\xff\xfe"),
        "retry": (in_sqlite, "retry", '{"base": -1}'),
        "history": (in_sqlite, "history", '[{"number": "x"}]'),
        "extra": (in_sqlite, "extra", b"not json"),
        "attempt": (in_sqlite, "attempt", "many"),
        "fence": (in_sqlite, "fence", b"\xff"),
        "max_attempts": (in_sqlite, "max_attempts", "12 or so"),
        "priority": (in_sqlite, "priority", "high"),
        "run_at": (in_sqlite, "run_at", "soon"),
        "created_at": (in_sqlite, "created_at", b"\x00"),
        "timeout": (in_sqlite, "timeout", "long"),
        "payload": (in_sqlite, "payload", None),
        "task not UTF-8": (in_sqlite_as_text, "task", b"\xff"),
        "codec": (in_sqlite, "codec", b"json"),
        "limit_key": (in_sqlite, "limit_key", b"\xff\xfe"),
        "checkpoint": (in_sqlite, "checkpoint", 1.5),
        "crashes": (in_sqlite, "crashes", "many"),
        "the largest fence": (in_sqlite, "fence", 2**63 - 1),
        "the largest attempt": (in_sqlite, "attempt", 2**63 - 1),
        "the largest crashes": (in_sqlite, "crashes", 2**63 - 1),
        "the largest saves": (in_sqlite, "saves", 2**63 - 1),
        "the least run_at": (in_sqlite, "run_at", -(2**63)),
        "the least fence": (in_sqlite, "fence", -(2**63)),
        "an infinite fence": (in_sqlite, "fence", float("inf")),
        "a large fence": (in_sqlite, "fence", 9e18),
    },
    "postgres": {
        "tags": (in_postgres, "tags", '{"no": "list"}'),
        "meta": (in_postgres, "meta", "[1]"),
        "retry": (in_postgres, "retry", '{"base": -1}'),
        "history": (in_postgres, "history", '[{"number": "x"}]'),
        "extra": (in_postgres, "extra", b"not json"),
        "timeout": (in_postgres, "timeout", float("nan")),
    },
    "redis": {
        "mutable": (in_redis, "~", lambda _: GARBAGE),
        "mutable.attempt": (in_redis, "~", with_letter("a", "many")),
        "mutable.history": (in_redis, "~", with_letter("y", [1])),
        "history": (in_redis, "~", with_letter("y", ["no json"])),
        "mutable.crashes": (in_redis, "~", with_letter("d", "many")),
        "mutable.changed_at": (in_redis, "~", with_letter("C", "now")),
        "extra": (in_redis, "~", with_letter("E", "no json")),
        "body": (in_redis, "", lambda _: GARBAGE),
        "body cut short": (in_redis, "", lambda body: body[:30]),
        "tags": (in_redis, "", with_part(6, "{no json")),
        "meta": (in_redis, "", with_part(12, "[1]")),
        "retry": (in_redis, "", with_part(11, {"base": -1})),
        "max_attempts": (in_redis, "", with_part(9, "many")),
        "codec": (in_redis, "", with_part(8, 5)),
    },
}
CASES = [(store, name) for store, some in DAMAGES.items() for name in some]


@pytest.fixture
async def app(store_url):
    async with Holdfast(store_url, poll=0.05, lease=1.0) as app:

        @app.task
        async def add(a: int, b: int) -> int:
            return a + b

        yield app


async def damage(app, store, name, id):
    write, where, value = DAMAGES[store][name]
    await write(app, id, where, value)


async def the_damaged(app):
    [job] = [job for job in (await app.jobs()).jobs if job.damage]
    return job


async def delete(app, id):
    await app.delete(id)
    with pytest.raises(JobNotFound):
        await app.job(id)


@pytest.mark.parametrize(("store_url", "name"), CASES, indirect=["store_url"])
async def test_a_damaged_job_that_waits_ends_dead_and_its_neighbours_run(request, app, name):
    store = request.node.callspec.params["store_url"]
    before = await app.enqueue("add", 1, 1)
    bad = await app.enqueue("add", 5, 5)
    after = await app.enqueue("add", 2, 2)
    await damage(app, store, name, bad.id)
    seen = await the_damaged(app)
    await work_off(app, concurrency=2)
    assert (await before.result(timeout=30), await after.result(timeout=30)) == (2, 4)
    [ended] = [job for job in (await app.jobs()).jobs if job.id in (bad.id, seen.id)]
    assert ended.state == State.DEAD
    assert ended.error.startswith("damaged: ")
    assert (await app.stats()).counts["dead"] == 1
    await delete(app, ended.id)


@pytest.mark.parametrize(("store_url", "name"), CASES, indirect=["store_url"])
async def test_a_damaged_job_that_ended_is_listed_shown_and_deleted(request, app, name):
    store = request.node.callspec.params["store_url"]
    bad, good = await app.enqueue("add", 5, 5), await app.enqueue("add", 1, 1)
    await work_off(app, concurrency=2)
    await damage(app, store, name, bad.id)
    seen = await the_damaged(app)
    assert seen.damage
    assert await app.explain(seen.id)
    assert (await app.jobs(tag="none")).jobs == []
    assert await good.result(timeout=30) == 2
    await session_of(app).store.tidy(10)
    await delete(app, seen.id)
    assert [job.id for job in (await app.jobs()).jobs] == [good.id]


@pytest.mark.parametrize(("store_url", "name"), CASES, indirect=["store_url"])
async def test_a_damaged_job_whose_holder_is_lost_keeps_no_other_from_being_recovered(request, app, name):
    store = request.node.callspec.params["store_url"]
    bad, good = await app.enqueue("add", 5, 5), await app.enqueue("add", 1, 1)
    holder = Holder("gone:1:1", 0.05, "manual", "gone", 1, ("default",))
    claims = await session_of(app).store.write(Batch(asks=[Ask(holder, ("default",), 2, 7)]))
    assert len(claims.asks[0].records) == 2
    await damage(app, store, name, bad.id)

    async def until_recovered():
        while (await app.job(good.id)).state == State.RUNNING:
            await app.bulk.recover()
            await asyncio.sleep(0.02)

    await asyncio.wait_for(until_recovered(), 90)
    await work_off(app, concurrency=2)
    assert await good.result(timeout=30) == 2
    seen = [job for job in (await app.jobs()).jobs if job.id != good.id]
    assert [job.state for job in seen] in ([State.DEAD], [State.BLOCKED], [State.SUCCEEDED])
    await delete(app, seen[0].id)


@pytest.mark.parametrize(("store_url", "name"), CASES, indirect=["store_url"])
async def test_a_damaged_quarantined_keeps_no_other_from_its_run(request, app, name):
    store = request.node.callspec.params["store_url"]
    jobs = [await app.enqueue("add", number, number) for number in range(3)]
    holder = Holder("gone:1:1", 60.0, "manual", "gone", 1, ("default",))
    claims = await session_of(app).store.write(Batch(asks=[Ask(holder, ("default",), 3, 7)]))
    assert len(claims.asks[0].records) == 3
    assert await parts_of(app).claims.recover(holder=holder.id) == 3
    await damage(app, store, name, jobs[0].id)
    await work_off(app, concurrency=3)
    assert [await job.result(timeout=30) for job in jobs[1:]] == [2, 4]
    [seen] = [job for job in (await app.jobs()).jobs if job.id not in (jobs[1].id, jobs[2].id)]
    assert seen.state in (State.DEAD, State.SUCCEEDED)
    await delete(app, seen.id)


async def test_postgres_refuses_a_limit_key_that_it_could_not_count_with(tmp_path):
    from support.stores import store

    asyncpg = pytest.importorskip("asyncpg")
    with store("postgres", tmp_path) as url:
        async with Holdfast(url) as app:
            job = await app.submit("add", b"{}", json=True)
            with pytest.raises(asyncpg.CheckViolationError):
                await in_postgres(app, job.id, "limit_key", '{"name": "l", "concurrency": "many"}')


# -- what is stored through the store's own protocol, on every store


@pytest.mark.parametrize("store_url", ["sqlite", "postgres", "redis", "folder"], indirect=True)
@pytest.mark.parametrize("fields", [{"extra": b"\xff"}, {"extra": b'{"after": 5}'}, {"timeout": 1e300}])
async def test_a_job_with_fields_that_only_the_core_can_decode(app, fields):
    bad = NewJob("bad", "add", "default", b'{"a": 1, "b": 1}', **fields)
    await session_of(app).store.write(Batch(inserts=[bad]))
    good = await app.enqueue("add", 1, 1)
    assert (await the_damaged(app)).id == "bad"
    await work_off(app, concurrency=2)
    assert await good.result(timeout=30) == 2
    job = await app.job("bad")
    assert (job.state, list(job.damage)) == (State.DEAD, list(fields))
    await delete(app, "bad")


# -- what a job waits for, which stores keep as text


async def waits_in_sqlite(app, id, text):
    await in_sqlite(app, id, "waiting_for", text)


async def waits_in_postgres(app, id, text):
    await in_postgres(app, id, "waiting_for", text)


async def waits_in_redis(app, id, text):
    await in_redis(app, id, "~", with_letter("W", text))


WAITS = {"sqlite": waits_in_sqlite, "postgres": waits_in_postgres, "redis": waits_in_redis}


@pytest.mark.parametrize("store_url", WAITS, indirect=True)
@pytest.mark.parametrize("text", ["", "no kind", "job:x", "dependency:", "unknown:x", "limit:\u4e16" * 200 + ":"])
async def test_a_job_that_waits_for_what_cannot_be_parsed_harms_no_other(request, app, text):
    store = request.node.callspec.params["store_url"]
    extra = msgspec.json.encode({"flow": "f", "after": [[0, "fail"]]})
    bad = NewJob("f.1", "add", "default", b'{"a": 1, "b": 1}', waiting_for=end_of("f.0"), extra=extra)
    await session_of(app).store.write(Batch(inserts=[bad]))
    good = await app.enqueue("add", 1, 1)
    await WAITS[store](app, "f.1", text)
    known = text.startswith("limit:")
    job = await app.job("f.1")
    assert job.waiting_for == (Waiting("limit", text.removeprefix("limit:")) if known else Waiting("unknown", text))
    assert job.damage == ({} if known else {"waiting_for": text})
    assert (await app.explain("f.1")).reason
    await release_of(app).free(["f.0"])  # an index may still lead to it
    await work_off(app, concurrency=2)
    assert await good.result(timeout=30) == 2
    await app.cancel("f.1")
    assert (await app.job("f.1")).state == State.CANCELLED
    assert (await app.jobs(state="blocked")).jobs == []


@pytest.mark.parametrize("store_url", ["sqlite", "postgres", "redis", "folder"], indirect=True)
async def test_a_job_that_waits_for_something_unknown_can_be_cancelled_and_deleted(app):
    bad = NewJob("bad", "add", "default", b'{"a": 1, "b": 1}', waiting_for=Waiting("unknown", "whatever"))
    await session_of(app).store.write(Batch(inserts=[bad]))
    good = await app.enqueue("add", 1, 1)
    await work_off(app, concurrency=2)
    assert await good.result(timeout=30) == 2
    job = await the_damaged(app)
    assert (job.id, job.state, job.waiting_for) == ("bad", State.BLOCKED, Waiting("unknown", "whatever"))
    said = await app.explain("bad")
    assert said.reason == "it waits for something unknown: whatever"
    assert said.details == (
        "it is damaged and cannot run: the stored value of waiting_for cannot be decoded: 'whatever'",
    )
    assert await app.cancel("bad")
    await delete(app, "bad")


def of_flow(id, extra, payload=b"{}", **fields):
    return NewJob(id, "flow" if id == "bad" else "add", "default", payload, extra=msgspec.json.encode(extra), **fields)


MANY = str(10**12).encode()
HEAD = {"extra": {"flow": "bad", "allow_unfinished": 0}, "waiting_for": Waiting("flow", "bad")}
BAD_FLOWS = {
    "far more jobs than there can be": ([of_flow("bad", payload=b'{"name": "", "jobs": %s}' % MANY, **HEAD)], None),
    "a growth beyond what there can be": ([of_flow("bad", payload=b'{"name": "", "jobs": 1}', **HEAD)], MANY),
    "jobs that come after each other": (
        [
            of_flow("bad", payload=b'{"name": "", "jobs": 1}', **HEAD),
            of_flow("bad.0", **HEAD),
            of_flow("bad.1", {"flow": "bad", "after": [[2, "fail"]]}, waiting_for=Waiting("dependency", "bad.2")),
            of_flow("bad.2", {"flow": "bad", "after": [[1, "fail"]]}, waiting_for=Waiting("dependency", "bad.1")),
        ],
        b"3",
    ),
}


@pytest.mark.parametrize("store_url", ["sqlite", "postgres", "redis", "folder"], indirect=True)
@pytest.mark.parametrize("what", BAD_FLOWS)
async def test_a_damaged_flow_keeps_no_other_from_its_end(app, what):
    jobs, count = BAD_FLOWS[what]
    store = session_of(app).store
    await store.write(Batch(inserts=jobs))
    if count is not None:
        await store.put_record("flow:bad", "jobs", count)
    await store.put_record("ended", "bad", b"{}")
    flow = Flow()
    add = parts_of(app).registry.tasks["add"]
    flow.add(add, flow.add(add, 1, 1), 1)
    good = await app.enqueue_flow(flow)
    async with working(app):
        assert (await good.wait(timeout=60)).state == State.SUCCEEDED


RECORDS = ("config", "pause", "task_pause", "schedule", "webhook", "signal", "ended", "token", "depth")


@pytest.mark.parametrize("store_url", ["sqlite", "postgres", "redis", "folder"], indirect=True)
@pytest.mark.parametrize("value", [b"", b"\xff\xfe", b"null", b"[]", b'{"name": 5}', b"[" * 5000])
async def test_a_record_that_cannot_be_decoded_stops_nothing(app, value):
    for kind in RECORDS:
        await session_of(app).store.put_record(kind, "broken", value)
    await session_of(app).refresh()
    good = await app.enqueue("add", 1, 1)
    await work_off(app, concurrency=2)
    assert await good.result(timeout=30) == 2
    assert await app.schedules.list() == []
    assert await app.bulk.paused_tasks() == []
    assert await app.webhooks.list() == []
    assert (await app.explain(good.id)).state == State.SUCCEEDED
    await app.signal("broken", 1)
    await app.bulk.recover()


async def test_sqlite_refuses_a_suspicion_by_which_no_claim_would_find_the_job(tmp_path):
    async with Holdfast(f"sqlite:///{tmp_path}/jobs.db") as app:
        job = await app.submit("add", b"{}", json=True)
        with closing(sqlite3.connect(session_of(app).store.path, timeout=30)) as connection:
            for quarantined in (2, -1, "yes"):
                with pytest.raises(sqlite3.IntegrityError), connection:
                    connection.execute("UPDATE holdfast_job SET quarantined = ? WHERE id = ?", (quarantined, job.id))
        assert [claim.job.id for claim in await app.claim()] == [job.id]


# -- what is stored beside jobs


def sqlite_change(app, statement, *values):
    with closing(sqlite3.connect(session_of(app).store.path, timeout=30)) as connection, connection:
        assert connection.execute(statement, values).rowcount == 1


async def held_by_another(app, lease=0.05):
    """A job that a process which is gone has claimed."""
    job = await app.enqueue("add", 1, 1)
    holder = Holder("gone:1:1", lease, "manual", "gone", 1, ("default",))
    claims = await session_of(app).store.write(Batch(asks=[Ask(holder, ("default",), 1, 7)]))
    assert [record.id for record in claims.asks[0].records] == [job.id]
    return job


async def recovered_and_run(app, job):
    async def until_recovered():
        while (await app.job(job.id)).state == State.RUNNING:
            await app.bulk.recover()
            await asyncio.sleep(0.02)

    await asyncio.wait_for(until_recovered(), 90)
    await work_off(app)
    assert await job.result(timeout=30) == 2


async def processes(app):
    await app.workers()
    return [seen.holder.id for seen in await session_of(app).store.holders()]


async def looked_at(app, job):
    """Whatever reads about all processes and queues."""
    assert await app.explain(job.id)
    assert (await app.stats()).counts["running"] == 1
    assert [queue.name for queue in (await app.queues())[0]] == ["default"]
    assert "gone:1:1" in await processes(app)


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("value", ["abc", b"\xff\xfe"])
@pytest.mark.parametrize("columns", [["about"], ["heartbeat"], ["renewed_at"], ["expires"], ["boot_id", "seen_at"]])
async def test_a_process_that_sqlite_cannot_decode_harms_no_other_and_loses_its_claims(app, columns, value):
    job = await held_by_another(app)
    for column in columns:
        sqlite_change(app, f"UPDATE holdfast_holder SET {column} = ? WHERE id = 'gone:1:1'", value)
    await looked_at(app, job)
    await recovered_and_run(app, job)
    await session_of(app).store.tidy(10)
    assert "gone:1:1" not in await processes(app)


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
async def test_a_heartbeat_has_numbers_where_those_of_a_claim_cannot_be_decoded(app):
    job = await held_by_another(app)
    sqlite_change(app, "UPDATE holdfast_job SET fence = ?, token = ? WHERE id = ?", b"\xff", "abc", job.id)
    [heartbeat] = await session_of(app).store.heartbeat([Holder("gone:1:1", 60.0, "manual", "gone", 1, ("default",))])
    assert [(held.id, held.fence, held.token) for held in heartbeat.held] == [(job.id, 0, 0)]


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("value", ["abc", b"\xff\xfe"])
async def test_a_watch_that_sqlite_cannot_decode_stops_nothing(app, value):
    sqlite_change(app, "UPDATE holdfast_watch SET until = ?", value)
    job = await held_by_another(app)
    await recovered_and_run(app, job)
    assert (await app.timeseries.transitions()).transitions == []


@pytest.mark.parametrize("store_url", ["redis"], indirect=True)
async def test_an_index_of_redis_that_names_no_job_stops_nothing(app):
    job = await held_by_another(app)
    link, head = (
        session_of(app).store._open(),
        f"{{{session_of(app).store.address.prefix}}}:",
    )
    await link.command("SADD", f"{head}held:gone:1:1", b"\xff\xfe")
    await link.command("ZADD", f"{head}ended", "0", b"\xff\xfe")
    await looked_at(app, job)
    await recovered_and_run(app, job)
    await session_of(app).store.tidy(10)


@pytest.mark.parametrize("store_url", ["redis"], indirect=True)
@pytest.mark.parametrize("value", [b"\xff\xfe", b"abc", b"", b"9" * 20, b"-1", b"nan"])
@pytest.mark.parametrize("field", ["about", "heartbeat", "at"])
async def test_a_process_that_redis_cannot_decode_harms_no_other_and_loses_its_claims(app, field, value):
    job = await held_by_another(app)
    link, head = (
        session_of(app).store._open(),
        f"{{{session_of(app).store.address.prefix}}}:",
    )
    await link.command("HSET", f"{head}holder:gone:1:1", field, value)
    await looked_at(app, job)
    await recovered_and_run(app, job)


@pytest.mark.parametrize("store_url", ["redis"], indirect=True)
@pytest.mark.parametrize("value", [b"\xff\xfe", b"", b"9" * 20, b"9223372036854775807"])
async def test_a_count_that_redis_cannot_add_to_leaves_no_step_half_done(app, value):
    link, head = (
        session_of(app).store._open(),
        f"{{{session_of(app).store.address.prefix}}}:",
    )
    job = await held_by_another(app)
    for letter in "tbrs":
        await link.command("HSET", f"{head}counts", f"{letter}:default", value)
    await link.command("HSET", f"{head}holder:gone:1:1", "heartbeat", value)
    [heartbeat] = await session_of(app).store.heartbeat([Holder("gone:1:1", 0.05, "manual", "gone", 1, ("default",))])
    assert [held.id for held in heartbeat.held] == [job.id]
    more = [await app.enqueue("add", 1, 1), *await app.enqueue_many([("add", 1, 1), ("add", 1, 1)])]
    await recovered_and_run(app, job)
    assert [await each.result(timeout=30) for each in more] == [2, 2, 2]
    assert await app.bulk.purge(state="succeeded") == 4


@pytest.mark.parametrize("store_url", ["redis"], indirect=True)
@pytest.mark.parametrize("value", [b"", b"\xff\xfe", b"12345678", b"12345678x:", b"123456789:"])
async def test_a_key_that_redis_cannot_decode_belongs_to_nobody(app, value):
    link, head = session_of(app).store._open(), f"{{{session_of(app).store.address.prefix}}}:"
    job = await parts_of(app).registry.tasks["add"].using(key="k").enqueue(1, 1)
    assert await session_of(app).store.key_owners(["k"]) == [job.id]
    await link.command("HSET", f"{head}keys", "k", value)
    assert await session_of(app).store.key_owners(["k", "l"]) == [None, None]


@pytest.mark.parametrize("store_url", ["redis"], indirect=True)
async def test_a_job_whose_mutable_part_redis_cannot_decode_keeps_its_key(app):
    job = await parts_of(app).registry.tasks["add"].using(key="k").enqueue(1, 1)
    await in_redis(app, job.id, "~", lambda _: GARBAGE)
    assert await session_of(app).store.key_owners(["k"]) == [job.id]


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("value", [b"\xff\xfe", 1.5, ""])
async def test_a_key_that_sqlite_cannot_decode_belongs_to_nobody(app, value):
    job = await parts_of(app).registry.tasks["add"].using(key="k").enqueue(1, 1)
    sqlite_change(app, "UPDATE holdfast_key SET id = ? WHERE key = 'k'", value)
    assert await session_of(app).store.key_owners(["k"]) == [None]
    sqlite_change(app, "UPDATE holdfast_key SET id = ? WHERE key = 'k'", job.id)
    sqlite_change(app, "UPDATE holdfast_job SET state = ? WHERE id = ?", b"\xff\xfe", job.id)
    assert await session_of(app).store.key_owners(["k"]) == [job.id]
