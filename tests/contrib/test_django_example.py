"""The Django project of `examples/django`: its own tests, and its first minute, on SQLite and Postgres."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.django_site import Site


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.extended)])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    return Site(tmp_path, request.param)


def test_its_own_tests_pass(site: Site):
    assert "Ran 6 tests" in site.manage("test", "shop")


ORDER = """
from django.test import Client
assert Client(headers={"Host": "localhost"}).post("/", {"item": "lamp", "email": "ada@example.com"}).status_code == 302
"""


@pytest.mark.extended
def test_an_order_of_the_site_is_confirmed_by_a_worker_process(site: Site):
    site.manage("migrate")
    site.shell(ORDER)
    site.manage("holdfast", "worker", "start", "--foreground", "--drain")
    unconfirmed = "from shop.models import Order; print(Order.objects.filter(confirmed_at=None).count(), 'left')"
    assert "0 left" in site.shell(unconfirmed)
