"""The peers' own virtual environment, made when it is missing or its requirements have changed."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import venv
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).resolve().parent


def python_of(name: str) -> str:
    """The interpreter of the environment with the locked `requirements/{name}.txt`, the same Python as this one."""
    requirements = HERE / "requirements" / f"{name}.txt"
    folder = HERE / ".envs" / name
    python, stamp = folder / "bin" / "python", folder / ".installed"
    wanted = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()
    if not python.exists() or not stamp.exists() or stamp.read_text(encoding="ascii") != wanted:
        print(f"Installing the peers of requirements/{name}.txt ...", file=sys.stderr)
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        install = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--require-hashes"]
        subprocess.run([*install, "-r", str(requirements)], check=True)
        stamp.write_text(wanted, encoding="ascii")
    return str(python)


def versions_in(python: str, names: list[str]) -> dict[str, str]:
    """The installed versions of these packages."""
    script = f"from importlib.metadata import version\nfor name in {names!r}: print(version(name))"
    told = subprocess.run([python, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    return dict(zip(names, told, strict=True))


def own_versions(names: list[str]) -> dict[str, str]:
    return {name: version(name) for name in names}
