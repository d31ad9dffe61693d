"""The wheel, built and installed into an empty environment with its own dependencies alone, is what a user gets.

The README and the first page are followed literally on each Python that is here.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from support import pythons
from support.snippets import play, snippets_of

pytestmark = pytest.mark.extended
ROOT = Path(__file__).parent.parent
FIRST_PAGE = "docs/start/first-five-minutes.md"


def run(*command, cwd):
    words = [str(part) for part in command]
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


UV = Path(sys.executable).parent / "uv"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    run(UV, "build", "--quiet", "--wheel", "--no-build-isolation", "--python", sys.executable, "-o", folder, cwd=ROOT)
    (built,) = folder.glob("*.whl")
    return built


def install(wheel, python, folder):
    run(UV, "venv", "--quiet", "--python", python, folder / "env", cwd=folder)
    installed = folder / "env" / "bin" / "python"
    run(UV, "pip", "install", "--quiet", "--python", installed, wheel, cwd=folder)
    return installed


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    return install(wheel, sys.executable, tmp_path_factory.mktemp("installed"))


@pytest.mark.parametrize("version", ["3.11", *pythons.VERSIONS])
def test_the_readme_and_the_first_page_can_be_followed(wheel, tmp_path, version):
    if (python := pythons.interpreter(version)) is None:
        pytest.skip(f"there is no Python {version} here")
    installed = install(wheel, python, tmp_path)
    program, *_ = snippets_of("README.md", (ROOT / "README.md").read_text())
    (tmp_path / "hello.py").write_text(program.text)
    assert run(installed, "hello.py", cwd=tmp_path) == "3\n"
    sessions = [page for page in snippets_of(FIRST_PAGE, (ROOT / FIRST_PAGE).read_text()) if page.language == "console"]
    for session in filter(lambda session: session.runs, sessions):
        play(session, tmp_path, installed.parent)
    assert (tmp_path / "worker.log").read_text().count("job_succeeded") == 2


def test_the_command_is_there(installed, tmp_path):
    assert run(installed.parent / "holdfast", "--version", cwd=tmp_path).startswith("holdfast ")


def test_the_manual_page_is_in_it(installed):
    page = installed.parent.parent / "share" / "man" / "man1" / "holdfast.1"
    assert page.read_text() == (ROOT / "docs" / "man" / "holdfast.1").read_text()


def test_its_readme_has_no_relative_links(installed, tmp_path):
    text = run(
        installed, "-c", "import importlib.metadata as m; print(m.metadata('holdfast')['Description'])", cwd=tmp_path
    )
    assert "[limitations](https://github.com/holdfast-queue/holdfast/blob/v" in text
    assert re.findall(r"\]\((?!https://)[^)]*\)", text) == []


@pytest.mark.parametrize(("url", "extra"), [("postgresql://nowhere/jobs", "postgres"), ("redis://nowhere", "redis")])
def test_a_store_whose_extra_is_missing_names_it(installed, tmp_path, url, extra):
    code = f"from holdfast import Holdfast\ntry: Holdfast({url!r}).sync.stats()\nexcept ImportError as e: print(e)"
    assert f"holdfast[{extra}]" in run(installed, "-c", code, cwd=tmp_path)


def test_the_signed_codec_without_cloudpickle_names_its_extra(installed, tmp_path):
    code = (
        "from holdfast import Holdfast\ntry: Holdfast('memory://', cloudpickle=True, secret='x' * 32)\n"
        "except ImportError as e: print(e)"
    )
    assert "holdfast[cloudpickle]" in run(installed, "-c", code, cwd=tmp_path)


def test_the_dashboard_is_in_it(installed, tmp_path):
    code = "from holdfast.dashboard.files import files\nfound = files()\n"
    code += "print(*sorted(found), sum(len(one.body) for one in found.values()))"
    *names, size = run(installed, "-c", code, cwd=tmp_path).split()
    static = ROOT / "src" / "holdfast" / "dashboard" / "static"
    assert names == sorted(path.name for path in static.iterdir())
    assert int(size) > 50_000
