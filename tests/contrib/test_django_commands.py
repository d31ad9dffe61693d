"""`manage.py holdfast`, `migrate` and `check`, and `holdfast -A` in a Django project."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import sqlite3
from pathlib import Path

import pytest

from holdfast import Holdfast
from support.django_project import PROJECT, Project
from support.eventually import eventually


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """The project on a SQLite file with its tables."""
    project = Project(STORE_FILE=str(tmp_path / "shop.sqlite3"))
    project.manage("migrate", "--verbosity", "0", "--skip-checks")
    return project


def store_of(project: Project) -> Holdfast:
    return Holdfast(f"sqlite:///{project.environment['STORE_FILE']}")


def test_checks_report_missing_tables_and_migrate_creates_them(tmp_path):
    project = Project(STORE_FILE=str(tmp_path / "shop.sqlite3"))
    assert "holdfast.W003" in project.manage("check", "--database", "default")
    assert not (tmp_path / "shop.sqlite3").exists()  # a check creates nothing
    project.manage("migrate", "--skip-checks")
    assert "holdfast.W003" not in project.manage("check", "--database", "default")
    with contextlib.closing(sqlite3.connect(tmp_path / "shop.sqlite3")) as own:
        tables = {name for (name,) in own.execute("SELECT name FROM sqlite_master")}
    assert {"holdfast_job", "store_order"} <= tables


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"URI": "x"}, "has no 'URI': did you mean 'URL'? Its keys are URL, DATABASE"),
        ({"max_attempts": 3}, "has no 'max_attempts': its keys are URL, DATABASE"),
        ({"IMMEDIATE": "yes"}, "HOLDFAST['IMMEDIATE'] is not valid: "),
        ({"DATABASE": "other"}, "'other', which is not in DATABASES: name one of default"),
        ({"SETTINGS": {"max_attempts": "many"}}, "max_attempts"),
        ({"URL": "mysql://x"}, "there is no store for the scheme 'mysql'"),
        ({"IMPORTS": ["a", 5]}, "HOLDFAST['IMPORTS'] is not valid: "),
        ({"URL": "memory://", "PARAMETERS": {"a": 1}}, "HOLDFAST['PARAMETERS'] cannot be combined with HOLDFAST"),
    ],
)
@pytest.mark.extended
def test_a_check_reports_wrong_settings_though_the_urls_import_tasks(given, said, tmp_path):
    (tmp_path / "with_urls.py").write_text("from store.settings import *\nROOT_URLCONF = 'urls'\n")
    (tmp_path / "urls.py").write_text("from store.tasks import app\nurlpatterns = []\n")
    project = Project(STORE_HOLDFAST=json.dumps(given))
    answer = project.manage("check", "--settings=with_urls", f"--pythonpath={tmp_path}", code=1)
    assert "holdfast.E001" in answer
    assert said in answer
    assert "Traceback" not in answer


def test_an_app_with_wrong_settings_says_so_when_it_is_used():
    project = Project(STORE_HOLDFAST=json.dumps({"SETTINGS": {"max_attempts": "many"}}))
    answer = project.run("-c", "import django; django.setup()\nfrom store.tasks import *; app.sync.stats()", code=1)
    assert "ConfigError: max_attempts" in answer


@pytest.mark.parametrize("installed", ["[]", pytest.param("['holdfast']", marks=pytest.mark.extended)])
def test_a_project_without_the_django_app_is_told_the_line_to_add(installed):
    code = (
        "import django\nfrom django.conf import settings\nfrom holdfast.contrib.django import get_app\n"
        f"settings.configure(INSTALLED_APPS={installed})\ndjango.setup()\nget_app()"
    )
    assert "add 'holdfast.contrib.django' to INSTALLED_APPS" in Project().run("-c", code, code=1)


@pytest.mark.extended
def test_commands_use_the_app_of_the_project(project):
    assert "up to date" in project.manage("holdfast", "migrate", "--check")
    project.shell("from store.tasks import confirm; confirm.enqueue(1)")
    assert "store.tasks.confirm" in project.manage("holdfast", "list")
    assert "uses the store of the Django settings" in project.manage("holdfast", "status", "--url", "memory://", code=2)


def test_a_worker_finds_the_tasks_of_installed_apps_and_runs_all_their_queues(project):
    said = project.shell(
        "from store.tasks import *; o = Order.objects.create(item='lamp')\n"
        "print(confirm.enqueue(o.pk).id, mail.enqueue(o.pk).id, count.sync.enqueue('lamp').id)"
    )
    project.manage("holdfast", "worker", "start", "--foreground", "--drain")
    with store_of(project).sync as store:
        assert [store.job(id).state for id in said.split()] == ["succeeded"] * 3


@pytest.mark.extended
def test_manage_py_is_started_in_another_folder_with_other_settings(project, tmp_path):
    id = project.shell("from store.tasks import *; print(count.sync.enqueue('lamp').id)")
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "other_settings.py").write_text("from store.settings import *\n")
    django = ["--settings", "other_settings", f"--pythonpath={tmp_path}/more"]
    project.folder = tmp_path
    project.run(str(PROJECT / "manage.py"), "holdfast", *django, "worker", "start", "--foreground", "--drain")
    with store_of(project).sync as store:
        assert store.job(id).state == "succeeded"


@pytest.mark.extended
def test_the_command_line_sets_up_the_project_for_any_app(project):
    words = ["-m", "holdfast", "-A", "store.tasks:app", "worker", "start", "--foreground", "--drain"]
    id = project.shell("from store.tasks import *; print(count.sync.enqueue('lamp').id)")
    project.run(*words)
    with store_of(project).sync as store:
        assert store.job(id).result == 0


@pytest.mark.extended
def test_settings_that_cannot_be_imported_are_reported(project):
    project.environment["DJANGO_SETTINGS_MODULE"] = "store.setings"
    said = project.run("-m", "holdfast", "-A", "store.tasks", "status", code=2)
    assert said.startswith("holdfast: DJANGO_SETTINGS_MODULE=store.setings: the Django project cannot be loaded: ")
    assert "Traceback" not in said


@pytest.mark.extended
async def test_workers_restart_when_a_file_changes(project, tmp_path):
    project.folder = tmp_path / "project"
    shutil.copytree(PROJECT, project.folder, ignore=shutil.ignore_patterns("__pycache__"))
    code = project.folder / "store" / "tasks.py"
    worker = project.start("manage.py", "holdfast", "worker", "start", "--foreground", "--reload")
    try:
        async with store_of(project) as app:

            async def answer() -> int:
                return await (await app.enqueue("count", "lamp")).result(60)

            assert await answer() == 0
            code.write_text(code.read_text().replace("return Order.objects.filter(item=item).count()", "return 77"))

            async def is_new() -> bool:
                return await answer() == 77

            await eventually(is_new, 120)
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait(60)


def test_a_project_that_declares_no_task_does_not_import_the_core():
    code = (
        "import sys, django\nfrom django.conf import settings\n"
        "settings.configure(INSTALLED_APPS=['holdfast.contrib.django'])\ndjango.setup()\n"
        "assert 'holdfast.app' not in sys.modules"
    )
    Project().run("-c", code)
