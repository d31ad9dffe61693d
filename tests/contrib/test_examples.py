"""Every example passes its own tests, in a folder of its own."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.extended  # whole projects; tests/contrib tests the integrations themselves
@pytest.mark.parametrize("name", sorted(one.parent.name for one in EXAMPLES.glob("*/test_*.py")))
def test_the_tests_of_an_example_pass(tmp_path, name):
    folder = shutil.copytree(EXAMPLES / name, tmp_path / name)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:valkey",
        "-p",
        "no:schemathesis",
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout
