import pytest
from shop import create_app
from shop.tasks import confirm, queue

from holdfast.testing import assert_enqueued


@pytest.fixture
def holdfast_app():
    return queue


@pytest.fixture
def client(holdfast_bench):
    return create_app(TESTING=True).test_client()


def test_an_order_is_confirmed(client, holdfast_bench):
    client.post("/orders/7")
    [job] = assert_enqueued(confirm, number=7)
    holdfast_bench.work()
    assert queue.sync.job(job.id).result == "Lamps & Co confirms order 7"


def test_the_dashboard_is_for_admins(client):
    assert client.get("/queue/").location == "/login"
    assert client.get("/queue/v1/stats").location == "/login"
    client.post("/login", data={"password": "secret"})
    assert client.get("/queue/").status_code == 200
    assert client.get("/queue/v1/stats").json["counts"]["queued"] == 0
