"""Enqueue inside the user's own transaction: the job exists if and only if it commits."""

import asyncio
import sqlite3
from contextlib import closing

import pytest

from holdfast import ConfigError, Holdfast, HoldfastError, InvalidJob, JobExists, JobNotFound, KeyConflict, State
from holdfast.app import parts_of
from support.workers import work_off, working


@pytest.fixture
def file(tmp_path):
    return tmp_path / "shop.db"


@pytest.fixture
def app(make_sqlite_app):
    return make_sqlite_app()


@pytest.fixture
async def make_sqlite_app(file):
    made = []

    def make(**settings):
        app = Holdfast(f"sqlite:///{file}", **settings)
        made.append(app)

        @app.task
        def ship(order: int) -> str:
            return f"shipped {order}"

        return app

    yield make
    for app in made:
        await app.close()
        await asyncio.to_thread(app.sync.close)


@pytest.fixture
def ship(app):
    return parts_of(app).registry.tasks["ship"]


@pytest.fixture
def connection(file, app):
    app.sync.stats()  # makes the schema
    app.sync.close()
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE orders (number INTEGER PRIMARY KEY)")
        connection.commit()
        yield connection


def orders(file):
    with closing(sqlite3.connect(file)) as connection:
        return [row[0] for row in connection.execute("SELECT number FROM orders")]


async def test_the_job_exists_once_the_transaction_commits(app, ship, connection, file):
    connection.execute("INSERT INTO orders VALUES (1)")
    handle = await ship.using(connection=connection).enqueue(1)
    with pytest.raises(JobNotFound):
        await handle.job()
    connection.commit()
    assert (await handle.job()).state == State.QUEUED
    assert orders(file) == [1]
    await work_off(app)
    assert await handle.result(timeout=30) == "shipped 1"


async def test_a_rollback_takes_the_job_with_it(app, ship, connection, file):
    connection.execute("INSERT INTO orders VALUES (1)")
    handle = await ship.using(connection=connection).enqueue(1)
    connection.rollback()
    with pytest.raises(JobNotFound):
        await handle.job()
    assert (await app.jobs()).jobs == []
    assert orders(file) == []


def test_blocking_code_enqueues_on_its_own_thread(app, ship, connection, file):
    connection.execute("INSERT INTO orders VALUES (1)")
    kept = ship.sync.using(connection=connection).enqueue(1)
    connection.commit()
    assert kept.job().state == State.QUEUED
    connection.execute("INSERT INTO orders VALUES (2)")
    dropped = ship.using(connection=connection).sync.enqueue(2)
    connection.rollback()
    with pytest.raises(JobNotFound):
        dropped.job()
    assert orders(file) == [1]


def test_every_blocking_way_to_enqueue_takes_a_connection(app, ship, connection):
    using = ship.using(connection=connection)
    kept = [app.sync.submit("raw", b"abc", connection=connection), app.sync.enqueue(using, 1), using.sync.enqueue(2)]
    connection.commit()
    assert [handle.job().state for handle in kept] == [State.QUEUED] * 3


async def test_submit_takes_a_connection_too(app, connection):
    handle = await app.submit("raw", b"abc", connection=connection)
    connection.rollback()
    with pytest.raises(JobNotFound):
        await handle.job()


def test_a_with_block_of_the_connection_decides(app, ship, connection):
    with connection:
        kept = ship.sync.using(connection=connection).enqueue(1)
    dropped = []

    def fail_half_way():
        with connection:
            dropped.append(ship.sync.using(connection=connection).enqueue(2))
            raise RuntimeError("out of stock")

    with pytest.raises(RuntimeError, match="out of stock"):
        fail_half_way()
    assert kept.job().payload == {"order": 1}
    with pytest.raises(JobNotFound):
        dropped[0].job()


def test_a_connection_in_autocommit_mode_commits_each_job(app, ship, connection):
    connection.isolation_level = None
    handle = ship.sync.using(connection=connection).enqueue(1)
    assert not connection.in_transaction
    assert handle.job().state == State.QUEUED


def test_a_savepoint_of_the_users_own_is_respected(app, ship, connection):
    connection.isolation_level = None
    connection.execute("BEGIN")
    kept = ship.sync.using(connection=connection).enqueue(1)
    connection.execute("SAVEPOINT mine")
    dropped = ship.sync.using(connection=connection).enqueue(2)
    connection.execute("ROLLBACK TO mine")
    connection.execute("COMMIT")
    assert kept.job().state == State.QUEUED
    with pytest.raises(JobNotFound):
        dropped.job()


def test_many_jobs_in_one_transaction_are_all_or_nothing(app, ship, connection):
    for n in range(20):
        ship.sync.using(connection=connection).enqueue(n)
    connection.rollback()
    assert app.sync.jobs().jobs == []
    for n in range(20):
        ship.sync.using(connection=connection).enqueue(n)
    connection.commit()
    assert app.sync.stats().counts["queued"] == 20


def test_keys_and_ids_are_enforced_inside_a_transaction_and_leave_it_usable(app, ship, connection, file):
    existing = ship.sync.using(key="k").enqueue(1)
    connection.execute("INSERT INTO orders VALUES (1)")
    assert ship.sync.using(connection=connection, key="k").enqueue(1).id == existing.id
    with pytest.raises(KeyConflict):
        ship.sync.using(connection=connection, key="k").enqueue(2)
    with pytest.raises(JobExists):
        ship.sync.using(connection=connection, id=existing.id).enqueue(3)
    connection.commit()
    assert orders(file) == [1], "a refused job does not take the user's own work with it"
    assert app.sync.stats().counts["queued"] == 1


def test_a_key_that_was_rolled_back_is_free(app, ship, connection):
    ship.sync.using(connection=connection, key="k").enqueue(1)
    connection.rollback()
    assert ship.sync.using(key="k").enqueue(2).job().payload == {"order": 2}


def test_a_wrong_call_is_refused_and_the_transaction_goes_on(app, ship, connection, file):
    connection.execute("INSERT INTO orders VALUES (1)")
    with pytest.raises(InvalidJob):
        ship.sync.using(connection=connection).enqueue("many")
    assert connection.in_transaction
    connection.commit()
    assert orders(file) == [1]


def test_the_users_own_settings_of_the_connection_are_left_alone(app, ship, connection):
    connection.row_factory = sqlite3.Row
    connection.text_factory = bytes
    ship.sync.using(connection=connection).enqueue(1)
    connection.commit()
    assert connection.row_factory is sqlite3.Row
    assert connection.text_factory is bytes
    assert app.sync.stats().counts["queued"] == 1


async def test_a_waiting_worker_starts_the_job_soon_after_the_commit(make_sqlite_app, connection):
    app = make_sqlite_app(poll=60)
    ship = parts_of(app).registry.tasks["ship"]
    async with working(app):
        handle = await ship.using(connection=connection).enqueue(1)
        connection.commit()
        assert await handle.result(timeout=30) == "shipped 1"


def test_a_connection_to_another_file_is_refused(app, ship, tmp_path):
    with (
        closing(sqlite3.connect(tmp_path / "other.db")) as other,
        pytest.raises(ConfigError, match="but the jobs are in"),
    ):
        ship.sync.using(connection=other).enqueue(1)
    with closing(sqlite3.connect(":memory:")) as other, pytest.raises(ConfigError, match="an in-memory database"):
        ship.sync.using(connection=other).enqueue(1)
    assert app.sync.jobs().jobs == []


@pytest.mark.parametrize("thing", ["connection", 5, object()])
def test_what_is_no_connection_is_refused(app, ship, thing):
    with pytest.raises(HoldfastError, match="connection"):
        ship.sync.using(connection=thing).enqueue(1)


def test_a_closed_connection_is_refused(app, ship, file, connection):
    closed = sqlite3.connect(file)
    closed.close()
    with pytest.raises((HoldfastError, sqlite3.ProgrammingError)):
        ship.sync.using(connection=closed).enqueue(1)


async def test_enqueue_many_does_not_take_a_connection(app, ship, connection):
    with pytest.raises(InvalidJob, match="enqueue_many does not take connection="):
        await app.enqueue_many([ship.using(connection=connection).call(1)])


async def test_a_store_that_cannot_share_a_transaction_says_so():
    async with Holdfast("memory://") as app:
        with closing(sqlite3.connect(":memory:")) as connection:
            task = parts_of(app).registry.tasks["noop"].using(connection=connection)
            with pytest.raises(ConfigError, match="the memory store does not support connection="):
                await task.enqueue()


async def test_hooks_around_enqueue_see_jobs_of_a_transaction_too(app, ship, connection):
    seen = []

    async def note(job, store):
        seen.append(job.task)
        return await store(job)

    app.around_enqueue.append(note)
    await ship.using(connection=connection).enqueue(1)
    connection.commit()
    assert seen == ["ship"]


@pytest.fixture(params=["DELETE", "WAL"])
def bare(request, file):
    """A connection to a file of the user's, in either journal mode, that Holdfast has never seen."""
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(f"PRAGMA journal_mode = {request.param}")
        connection.execute("CREATE TABLE orders (number INTEGER PRIMARY KEY)")
        connection.commit()
        yield connection


WAYS = {
    "await task.enqueue": lambda app, ship, mine: asyncio.run(ship.using(connection=mine).enqueue(1)),
    "await app.submit": lambda app, ship, mine: asyncio.run(app.submit("raw", b"abc", connection=mine)),
    "task.sync.enqueue": lambda app, ship, mine: ship.sync.using(connection=mine).enqueue(1),
    "app.sync.submit": lambda app, ship, mine: app.sync.submit("raw", b"abc", connection=mine),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("begin", ["BEGIN IMMEDIATE", "INSERT INTO orders VALUES (1)", "BEGIN"])
def test_a_transaction_on_a_file_without_tables_is_reported_to_make_them_first(way, begin, app, ship, bare):
    bare.execute(begin)
    with pytest.raises(ConfigError, match=r"no Holdfast tables .* roll back, then run `holdfast migrate`, or open"):
        WAYS[way](app, ship, bare)
    assert bare.in_transaction
    bare.rollback()
    assert [name for (name,) in bare.execute("SELECT name FROM sqlite_master")] == ["orders"]


@pytest.mark.parametrize("way", WAYS)
def test_outside_a_transaction_the_first_job_makes_the_tables(way, app, ship, bare):
    WAYS[way](app, ship, bare)
    bare.commit()
    assert app.sync.stats().counts["queued"] == 1


@pytest.mark.parametrize("way", WAYS)
def test_an_app_opens_while_the_users_transaction_has_the_write_lock(way, app, ship, connection):
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO orders VALUES (1)")
    WAYS[way](app, ship, connection)
    connection.commit()
    assert app.sync.stats().counts["queued"] == 1


@pytest.mark.parametrize("url", ["memory://", "redis://127.0.0.1:1", "file:///nowhere/jobs", "http://127.0.0.1:1"])
def test_a_store_that_cannot_says_so_before_it_is_opened(url, connection):
    app = Holdfast(url)
    text = r"store does not support connection=: .*sqlite:///…, postgresql://….* after your commit, .*on_memory"
    with pytest.raises(ConfigError, match=text):
        app.sync.submit("raw", b"abc", connection=connection)
