"""What an extra has is asked for by the extra's name; any other failure of an import is shown as it is."""

import subprocess
import sys

import pytest

from holdfast import MissingExtra
from holdfast.core.errors import requires

ENTRIES = {
    "server": ("from holdfast.http import asgi; asgi(Holdfast('memory://'))", "starlette", "starlette.types"),
    "postgres": ("Holdfast('postgresql://h/d')", "asyncpg", "asyncpg.protocol"),
    "redis": ("Holdfast('redis://h')", "hiredis", "hiredis.hiredis"),
    "remote": ("Holdfast('http://h')", "aiohttp", "multidict"),
    "sentry": ("import holdfast.contrib.sentry", "sentry_sdk", "sentry_sdk.crons"),
    "tui": ("from holdfast.cli.top import top; top('memory://')", "textual", "rich.console"),
}
RUN = """
import sys
from holdfast import Holdfast

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name == {missing!r}:
            raise ModuleNotFoundError("No module named " + name, name=name)

sys.meta_path.insert(0, Missing())
try:
    {code}
except ImportError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize("extra", ENTRIES)
def test_a_module_of_the_extra_that_is_not_installed_names_the_extra(extra):
    code, own, _ = ENTRIES[extra]
    assert run(code, own).startswith("MissingExtra ")
    assert f"holdfast[{extra}]" in run(code, own)


@pytest.mark.parametrize("extra", ENTRIES)
def test_another_module_that_is_missing_is_named_and_not_the_extra(extra):
    code, _, other = ENTRIES[extra]
    said = run(code, other)
    assert said.split()[0] in ("ModuleNotFoundError", "ImportError")
    assert other.rpartition(".")[2] in said
    assert "holdfast[" not in said


def run(code, missing):
    program = RUN.format(missing=missing, code=code)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


def test_an_import_error_of_a_module_that_is_there_is_shown_as_it_is():
    with pytest.raises(ImportError, match="no name x") as shown, requires("a thing", "server", "uvicorn"):
        raise ImportError("no name x", name="uvicorn")
    assert not isinstance(shown.value, MissingExtra)
