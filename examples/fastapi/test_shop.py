import pytest
import shop
from fastapi.testclient import TestClient
from sqlalchemy.ext.asyncio import create_async_engine

from holdfast.testing import assert_enqueued, assert_not_enqueued


@pytest.fixture
def holdfast_app():
    return shop.queue


@pytest.fixture
def client(holdfast_bench, tmp_path, monkeypatch):
    monkeypatch.setattr(shop, "engine", create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/shop.db"))
    with TestClient(shop.web) as client:
        yield client


def test_an_order_is_confirmed(client, holdfast_bench):
    placed = client.post("/orders", params={"item": "lamp"}).json()
    assert_enqueued(shop.confirm, order_id=placed["order"])
    holdfast_bench.work()
    assert client.get(f"/jobs/{placed['job']}").json() == {"state": "succeeded", "result": "confirmed order 1"}


def test_an_unknown_job_is_not_found(client):
    assert client.get("/jobs/unknown").status_code == 404


def test_a_rejected_order_has_no_job(client):
    assert client.post("/orders", params={"item": ""}).status_code == 422
    assert_not_enqueued(shop.confirm)


def test_the_dashboard_is_for_admins(client):
    assert client.get("/queue/").status_code == 401
    assert client.get("/queue/v1/stats").status_code == 401
    assert client.get("/queue/v1/stats", auth=("admin", "secret")).json()["counts"]["queued"] == 0
