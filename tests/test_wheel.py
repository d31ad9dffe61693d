"""The wheel, built and installed into an empty environment with its own dependencies alone, is what a user gets."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.extended
ROOT = Path(__file__).parent.parent


def run(*command, cwd):
    words = [str(part) for part in command]
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    uv = Path(sys.executable).parent / "uv"
    run(uv, "build", "--quiet", "--wheel", "--no-build-isolation", "--python", sys.executable, "-o", folder, cwd=ROOT)
    run(uv, "venv", "--quiet", "--python", sys.executable, folder / "env", cwd=folder)
    python = folder / "env" / "bin" / "python"
    run(uv, "pip", "install", "--quiet", "--python", python, *folder.glob("*.whl"), cwd=folder)
    return python


def test_the_program_at_the_top_of_the_readme_runs(installed, tmp_path):
    program = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert program is not None
    (tmp_path / "hello.py").write_text(program[1])
    assert run(installed, "hello.py", cwd=tmp_path) == "3\n"


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
