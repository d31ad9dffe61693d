"""What a shell job's environment has of its worker's, and what it never has."""

from types import SimpleNamespace

import pytest

from holdfast import ConfigError
from holdfast.core.settings import parse
from holdfast.worker.run.shell import _environment

CONTEXT = SimpleNamespace(job=SimpleNamespace(id="x"), attempt=1, fence=7)
ALWAYS = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "LC_TIME",
    "TZ",
    "TMPDIR",
    "TERM",
    "VIRTUAL_ENV",
    "HTTP_PROXY",
    "https_proxy",
    "NO_PROXY",
    "HOLDFAST_JOB_COLOUR",
]
NEVER = ["AWS_SECRET_ACCESS_KEY", "AWS_REGION", "PGPASSWORD", "DJANGO_SETTINGS_MODULE", "MYPATH", "PATHS", "path"]


@pytest.fixture(autouse=True)
def surroundings(monkeypatch):
    for name in (*ALWAYS, *NEVER, "HOLDFAST_SECRET", "HOLDFAST_TOKEN"):
        monkeypatch.setenv(name, "value")
    monkeypatch.setenv("HOLDFAST_URL", "postgresql://ann:hunter2@db/jobs")


def passed(*names, given=None):
    return _environment(CONTEXT, given, names)


def test_a_command_gets_the_usual_variables_and_no_others():
    assert set(ALWAYS) <= set(passed())
    assert not {*NEVER, "HOLDFAST_SECRET", "HOLDFAST_TOKEN", "HOLDFAST_URL"} & set(passed())


def test_a_shell_job_gets_its_own_ids_and_not_those_of_its_worker(monkeypatch):
    monkeypatch.setenv("HOLDFAST_JOB_ID", "another")
    found = passed()
    assert (found["HOLDFAST_JOB_ID"], found["HOLDFAST_ATTEMPT"], found["HOLDFAST_FENCE"]) == ("x", "1", "7")


def test_a_name_or_a_pattern_passes_more_on():
    assert passed("PGPASSWORD")["PGPASSWORD"] == "value"
    assert {"AWS_SECRET_ACCESS_KEY", "AWS_REGION"} <= set(passed("AWS_*"))
    assert "PGPASSWORD" not in passed("AWS_*")


def test_everything_but_holdfasts_own_secrets_is_passed_on_by_a_star():
    found = passed("*")
    assert {*ALWAYS, *NEVER} <= set(found)
    assert not {"HOLDFAST_SECRET", "HOLDFAST_TOKEN", "HOLDFAST_URL"} & set(found)


def test_holdfasts_own_secrets_are_passed_on_by_their_names_alone():
    named = ("HOLDFAST_SECRET", "HOLDFAST_TOKEN", "HOLDFAST_URL")
    assert set(named) <= set(passed(*named))


def test_a_url_without_a_secret_is_passed_on_like_any_variable(monkeypatch):
    monkeypatch.setenv("HOLDFAST_URL", "sqlite:///jobs.db")
    assert "HOLDFAST_URL" not in passed()
    assert passed("HOLDFAST_*")["HOLDFAST_URL"] == "sqlite:///jobs.db"


def test_the_jobs_own_variables_come_before_its_workers():
    assert passed("*", given={"PATH": "/mine", "PGPASSWORD": "mine"})["PGPASSWORD"] == "mine"
    assert passed(given={"HOLDFAST_TOKEN": "mine"})["HOLDFAST_TOKEN"] == "mine"


@pytest.mark.parametrize("given", ["AWS_*,PGHOST", " AWS_* , PGHOST,", ["AWS_*", "PGHOST"]])
def test_the_setting_takes_text_with_commas_or_a_list(given):
    assert parse("pass_env", given) == ("AWS_*", "PGHOST")


@pytest.mark.parametrize("given", ["PGPASSWORD=hunter2", ["PGPASSWORD=hunter2"], "two words hunter2", 5, [5], None])
def test_what_is_no_name_is_refused_and_not_repeated(given):
    with pytest.raises(ConfigError, match="pass_env must be") as refused:
        parse("pass_env", given)
    assert "hunter2" not in str(refused.value)
