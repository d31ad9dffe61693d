"""What a shell job's environment never has."""

from types import SimpleNamespace

import pytest

from holdfast.worker.run.shell import _environment

CONTEXT = SimpleNamespace(job=SimpleNamespace(id="x"), attempt=1, fence=7)


@pytest.mark.parametrize(
    ("url", "passed_on"),
    [
        ("sqlite:///jobs.db", True),
        ("postgresql://ann@db/jobs", True),
        ("postgresql://ann:hunter2@db/jobs", False),
        ("s3://jobs?secret_access_key=hunter2", False),
    ],
)
def test_the_stores_url_is_passed_on_unless_it_holds_a_secret(monkeypatch, url, passed_on):
    monkeypatch.setenv("HOLDFAST_URL", url)
    monkeypatch.setenv("HOLDFAST_TOKEN", "hunter2")
    found = _environment(CONTEXT, None)
    assert (found.get("HOLDFAST_URL") == url) is passed_on
    assert "HOLDFAST_TOKEN" not in found
    assert _environment(CONTEXT, {"HOLDFAST_URL": url})["HOLDFAST_URL"] == url
