import json

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
    monkeypatch.setattr(shop, "EXPORTS", tmp_path)
    with TestClient(shop.web) as client:
        yield client


def test_an_order_is_confirmed(client, holdfast_bench):
    placed = client.post("/orders", params={"item": "lamp"}).json()
    assert_enqueued(shop.confirm, order_id=placed["order"])
    holdfast_bench.work()
    assert client.get(f"/jobs/{placed['job']}").json() == {
        "state": "succeeded",
        "progress": None,
        "result": "confirmed order 1",
    }


def test_an_unknown_job_is_not_found(client):
    assert client.get("/jobs/unknown").status_code == 404


def test_a_rejected_order_has_no_job(client):
    assert client.post("/orders", params={"item": ""}).status_code == 422
    assert_not_enqueued(shop.confirm)


def test_the_dashboard_is_for_admins(client):
    assert client.get("/queue/").status_code == 401
    assert client.get("/queue/v1/stats").status_code == 401
    assert client.get("/queue/v1/stats", auth=("admin", "secret")).json()["counts"]["queued"] == 0


@pytest.fixture
def lamps(client, monkeypatch):
    """25 orders, exported in pages of ten."""
    monkeypatch.setattr(shop, "PAGE", 10)
    for number in range(25):
        client.post("/orders", params={"item": f"lamp {number}"})
    return "".join(f"{number + 1},lamp {number}\n" for number in range(25))


def test_an_export_goes_on_behind_its_last_page(client, holdfast_bench, lamps, monkeypatch):
    write_at, sizes = shop.write_at, []

    def failing(path, position, text):
        written = write_at(path, position, text)
        sizes.append(written)
        if len(sizes) == 2:
            raise OSError("disk full")  # the page is in the file, but no checkpoint says so
        return written

    monkeypatch.setattr(shop, "write_at", failing)
    job = client.post("/exports").json()["job"]
    assert client.post("/exports").json()["job"] == job  # one at a time
    holdfast_bench.work()
    assert client.get(f"/jobs/{job}").json() == {
        "state": "failed",
        "progress": {"done": 10, "total": 25},
        "result": None,
    }
    assert client.get(f"/exports/{job}").status_code == 409
    holdfast_bench.advance(60)
    holdfast_bench.work()
    assert client.get(f"/jobs/{job}").json() == {
        "state": "succeeded",
        "progress": {"done": 25, "total": 25},
        "result": 25,
    }
    assert client.get(f"/exports/{job}").text == lamps


def test_an_answer_is_streamed(client, holdfast_bench, monkeypatch):
    monkeypatch.setattr(shop, "PAUSE", 0)
    job = client.post("/questions", params={"text": "Brass?"}).json()["job"]
    holdfast_bench.work()
    events = client.get(f"/questions/{job}").text.split("\n\n")[1:-1]
    chunks = [json.loads(event.rpartition("data: ")[2]) for event in events[:-1]]
    assert "".join(chunk["value"] for chunk in chunks) == client.get(f"/jobs/{job}").json()["result"]
    assert events[-1] == 'event: end\ndata: {"status":"succeeded"}'
    rest = client.get(f"/questions/{job}", headers={"Last-Event-ID": str(chunks[2]["position"])}).text
    assert rest.split("\n\n")[1:-1] == events[3:]
    assert "EventSource" in client.get("/ask").text
    assert client.get(f"/questions/{client.post('/exports').json()['job']}").status_code == 404


def test_an_export_can_be_cancelled(client, holdfast_bench):
    job = client.post("/exports").json()["job"]
    assert client.delete(f"/jobs/{job}").json() == {"cancelled": True}
    holdfast_bench.work()
    assert client.get(f"/jobs/{job}").json()["state"] == "cancelled"
    assert client.delete(f"/jobs/{job}").json() == {"cancelled": False}
