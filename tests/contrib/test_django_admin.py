"""The admin and the dashboard in the Django project of `examples/django`: Django's own tests, in one process."""

from __future__ import annotations

from pathlib import Path

from support.django_site import Site


def test_admin_and_dashboard(tmp_path: Path):
    assert "Ran 25 tests" in Site(tmp_path).manage("test", "--buffer", "--pattern", "*_cases.py", "django_admin")


WITHOUT_EXTRA = """
import sys
class NotInstalled:
    def find_spec(name, *_):
        if name == "starlette":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, NotInstalled)
import holdfast.contrib.django.admin
from holdfast import MissingExtra
try:
    import holdfast.contrib.django.urls
except MissingExtra as error:
    print(error)
"""


def test_the_dashboard_names_its_missing_extra_and_the_admin_needs_none(tmp_path: Path):
    assert "holdfast[server]" in Site(tmp_path).shell(WITHOUT_EXTRA)
