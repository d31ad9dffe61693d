"""The tests of a Django project, run by Django's runner and by pytest-django, on each database."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from support.django_project import Project
from support.postgres import shared_postgres

_numbers = itertools.count(1)


def project(database: str, folder: Path, **environment: str) -> Project:
    """The project on a kind of database."""
    if database == "postgres":
        port, name = str(shared_postgres().port), f"suite_{next(_numbers)}"
        return Project(STORE_POSTGRES=port, STORE_TEST_NAME=name, **environment)
    if database == "file":
        files = {"STORE_FILE": str(folder / "shop.sqlite3"), "STORE_TEST_NAME": str(folder / "test.sqlite3")}
        return Project(**files, **environment)
    return Project(**environment)


def test_the_whole_suite_in_memory(tmp_path):
    assert "OK" in project("memory", tmp_path).manage("test", "--noinput")


@pytest.mark.parametrize("database", ["file", "postgres"])
def test_transactions(database, tmp_path):
    assert "OK" in project(database, tmp_path).manage("test", "--noinput", "store.tests_transactions")


@pytest.mark.extended
@pytest.mark.parametrize("database", ["file", "postgres"])
def test_the_whole_suite(database, tmp_path):
    assert "OK" in project(database, tmp_path).manage("test", "--noinput")


@pytest.mark.extended
@pytest.mark.parametrize("database", ["memory", "file", "postgres"])
def test_clones_of_the_test_database_are_whole(database, tmp_path):
    words = ["--parallel", "2", "store.tests_transactions", "store.tests_testing"]
    assert "OK" in project(database, tmp_path).manage("test", "--noinput", *words)


@pytest.mark.extended
def test_the_whole_suite_with_psycopg2(tmp_path):
    assert "OK" in project("postgres", tmp_path, STORE_DRIVER="psycopg2").manage("test", "--noinput")


@pytest.mark.extended
@pytest.mark.parametrize("database", ["memory", "postgres"])
def test_a_store_of_its_own_gets_jobs_after_the_commit(database, tmp_path):
    given = json.dumps({"URL": f"sqlite:///{tmp_path}/jobs.db"})
    assert "OK" in project(database, tmp_path, STORE_HOLDFAST=given).manage("test", "--noinput")
    assert (tmp_path / "jobs.db").exists()


@pytest.mark.extended
@pytest.mark.parametrize("database", ["memory", "file", "postgres"])
@pytest.mark.parametrize("more", [(), ("--no-migrations",)])
def test_pytest_django(database, more, tmp_path):
    options = ["-o", "python_files=tests_*.py", "-o", "asyncio_default_fixture_loop_scope=function"]
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", ".", *options, *more]
    if database == "memory":  # Django never closes such a connection of another thread, and Python 3.13 warns of it
        words = ["-W", "ignore:unclosed database:ResourceWarning", *words]
    assert "passed" in project(database, tmp_path).run(*words, "store")
