"""The admin and the dashboard in the Django project of `examples/django`: Django's own tests, in one process."""

from __future__ import annotations

from pathlib import Path

from support.django_site import Site


def test_admin_and_dashboard(tmp_path: Path):
    assert "Ran 24 tests" in Site(tmp_path).manage("test", "--buffer", "--pattern", "*_cases.py", "django_admin")
