"""The units, by systemd's own check: it needs no running systemd."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.deployed import DEPLOY

pytestmark = [
    pytest.mark.extended,
    pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze here"),
]
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))


def verified(folder, unit, **changes):
    """What systemd-analyze says of the unit, with a command that exists here."""
    text = unit.read_text().replace("/opt/holdfast/bin/holdfast", str(Path(sys.executable).with_name("holdfast")))
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    (folder / unit.name).write_text(text)
    command = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", folder / unit.name]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_accepts_the_unit_and_every_setting_in_it(unit, tmp_path):
    done = verified(tmp_path, unit)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_the_check_finds_a_misspelt_setting(unit, tmp_path):
    assert "RestartSecs" in verified(tmp_path, unit, RestartSec="RestartSecs").stderr
