"""With a pgbouncer that pools by transaction every promise holds; hints do not pass it; jobs are found by polling."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from holdfast import ConfigError, Context, Holdfast, OutcomeUnknown, StoreUnavailable, Worker
from holdfast.store.postgres import PostgresStore, trouble
from holdfast.store.protocol import Batch
from holdfast.testing.build import ask, holder, new_job, succeeded
from holdfast.testing.verbs import claim, insert, running
from support import pgbouncer
from support.eventually import eventually

pytestmark = [
    pytest.mark.extended,
    pytest.mark.skipif(pgbouncer.binary() is None, reason="no pgbouncer: python tests/support/fetch.py fetches one"),
]


@pytest.fixture(scope="module")
def bouncer(server):
    bouncer = pgbouncer.PgBouncer(server)
    yield bouncer
    bouncer.remove()


@pytest.fixture
def behind(bouncer, schema):
    return f"{bouncer.url}?schema={schema}&pgbouncer=transaction"


async def test_an_unnamed_pgbouncer_is_named_by_the_error(bouncer):
    with pytest.raises(ConfigError, match=r"is a pgbouncer: add its pool mode to the URL"):
        await PostgresStore(bouncer.url).open()


async def test_polling_alone_finds_jobs_and_results(behind, url):
    app = Holdfast(behind, poll=0.1)

    @app.task
    async def double(n: int) -> int:
        return 2 * n

    async with app:
        worker = Worker(app, concurrency=10)
        working = asyncio.create_task(worker.run())
        handles = await asyncio.gather(*(double.enqueue(n) for n in range(200)))
        handles += await app.enqueue_many([app.call(double, n) for n in range(200, 400)])
        assert await asyncio.gather(*(handle.result(timeout=30) for handle in handles)) == [2 * n for n in range(400)]
        worker.stop()
        await working
    store = PostgresStore(url)
    await store.open()
    assert [(queue.name, queue.counts) for queue in await store.stats()] == [("default", {"succeeded": 400})]
    await store.close()


async def test_many_stores_share_two_connections(behind):
    stores = [PostgresStore(behind) for _ in range(8)]
    await stores[0].open()
    await asyncio.gather(*(store.open() for store in stores[1:]))

    async def work(store: PostgresStore, name: str) -> int:
        done, records = 0, []
        for n in range(15):
            batch = Batch(
                inserts=[new_job(f"{name}-{n}-{k}") for k in range(3)],
                settles=[succeeded(record) for record in records],
                asks=[ask(holder(name, 60.0), limit=3)],
            )
            records = list((await store.write(batch)).asks[0].records)
            await store.heartbeat([holder(name, 60.0)])
            done += len(records)
        await store.write(Batch(settles=[succeeded(record) for record in records]))
        return done

    done = await asyncio.gather(*(work(store, f"w{n}") for n, store in enumerate(stores)))
    rest = await claim(stores[0], limit=1000)
    assert sum(done) + len(rest) == 8 * 15 * 3
    for store in stores:
        await store.close()


async def test_a_transaction_of_the_users_own_and_of_a_task(behind, bouncer, sql, schema):
    await sql.execute(f"CREATE TABLE effect_{schema} (n integer)")
    app = Holdfast(behind, poll=0.1)

    @app.task
    async def affect(ctx: Context, n: int) -> None:
        async with ctx.transaction() as connection:
            await connection.execute(f"INSERT INTO effect_{schema} VALUES ($1)", n)

    async with app:
        user = await asyncpg.connect(bouncer.url, statement_cache_size=0)
        for n, commits in ((1, True), (2, False)):
            transaction = user.transaction()
            await transaction.start()
            await affect.using(connection=user).enqueue(n)
            await (transaction.commit() if commits else transaction.rollback())
        await user.close()
        await Worker(app, until_idle=True).run()
    assert [row[0] for row in await sql.fetch(f"SELECT n FROM effect_{schema}")] == [1]


async def test_nothing_is_left_on_a_shared_connection(behind, sql):
    """No lock of a listener is left there, which would make every writer notify for ever."""
    store = PostgresStore(behind)
    await store.open()
    listener = store.listen(["queue/default", "job/a"])
    await running(store, "a")
    await listener.wait(0.2)
    listener.close()
    assert await sql.fetchval("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0
    await store.close()


async def test_the_doctor_says_that_there_are_no_hints(behind):
    store = PostgresStore(behind)
    await store.open()
    assert any("jobs are found by polling alone" in finding.what for finding in await store.examine())
    await store.close()


async def test_the_way_back_after_pgbouncer_was_away(server, schema):
    bouncer = pgbouncer.PgBouncer(server)
    store = PostgresStore(f"{bouncer.url}?schema={schema}&pgbouncer=transaction")
    await store.open()
    await insert(store, new_job("a"))
    bouncer.restart()

    async def answers() -> bool:
        return [record.id for record in await store.get(["a"]) if record is not None] == ["a"]

    await eventually(answers, 15)
    await store.close()
    bouncer.remove()


@pytest.fixture
def impatient(server):
    """A pgbouncer whose clients wait for a server for one second."""
    bouncer = pgbouncer.PgBouncer(server, query_wait_timeout="1")
    yield bouncer
    bouncer.remove()


async def test_a_write_that_pgbouncer_had_no_server_for_was_not_made(impatient, schema):
    store = PostgresStore(f"{impatient.url}?schema={schema}&pgbouncer=transaction")
    await store.open()
    others = [await asyncpg.connect(impatient.url, statement_cache_size=0) for _ in range(2)]
    for other in others:  # there are two connections to the server, and both are taken now
        await other.execute("BEGIN")
    with pytest.raises(StoreUnavailable, match="pgbouncer has no free server"):
        await insert(store, new_job("a"))
    for other in others:
        await other.close()
    assert (await insert(store, new_job("a")))[0].outcome == "created"
    await store.close()


@pytest.mark.parametrize(
    ("words", "known"),
    [
        ("server login has been failing, try again later (server_login_retry)", True),
        ("query_wait_timeout", True),
        ("pgbouncer cannot connect to server", True),
        ("server conn crashed?", False),
        ("an unknown message", False),
    ],
)
def test_only_statements_that_pgbouncer_never_sent_are_known_not_written(words, known):
    lost = asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation")
    lost.__cause__ = asyncpg.ProtocolViolationError(words)
    for error in (lost, lost.__cause__):
        meaning = StoreUnavailable if known else OutcomeUnknown
        assert type(trouble.writing(error, "here", first=True)) is meaning
        assert type(trouble.writing(error, "here", first=False)) is OutcomeUnknown
