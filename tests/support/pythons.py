"""The part of the tests that depends on the Python version, on the others that are here: a part of `make test-all`.

Each has an environment of its own below .venv, from the locked versions. One that is not installed is left out by name.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VERSIONS = ("3.12", "3.13")
TESTS = (
    "tests/unit",
    "tests/app",
    "tests/conformance/test_memory.py",
    "tests/conformance/test_sqlite.py",
    "tests/contrib/test_django_suite.py",
    "tests/contrib/test_django_commands.py",
    "tests/contrib/test_django_connections.py",
)


def interpreter(version: str) -> Path | None:
    """A Python of this version: on the path, or one of pyenv's."""
    found = [shutil.which(f"python{version}")]
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    found += sorted(map(str, pyenv.glob(f"versions/{version}.*/bin/python")), reverse=True)
    for candidate in filter(None, found):
        asked = [candidate, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        if subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip() == version:
            return Path(candidate)  # a shim of pyenv may be there, and start nothing
    return None


def environment(version: str, python: Path) -> Path:
    """Its own environment, installed anew where the locked versions have changed."""
    folder, lock = ROOT / ".venv" / "pythons" / version, ROOT / "requirements" / "dev.lock"
    stamp = folder / "dev.lock"
    if not stamp.exists() or stamp.read_bytes() != lock.read_bytes():
        uv = [Path(sys.executable).parent / "uv", "--quiet"]
        subprocess.run([*uv, "venv", "--clear", "--python", python, folder], check=True)
        install = [*uv, "pip", "install", "--python", folder / "bin" / "python"]
        subprocess.run([*install, "--require-hashes", "-r", lock], check=True)
        subprocess.run([*install, "--no-deps", "--no-build-isolation", "-e", "."], check=True, cwd=ROOT)
        shutil.copy(lock, stamp)
    return folder / "bin" / "python"


def main() -> None:
    """Run them one version after the other; the arguments go to pytest."""
    failed: list[str] = []
    for version in VERSIONS:
        python = interpreter(version)
        if python is None:
            print(f"Python {version} is not here: the tests did not run on it.", flush=True)
            continue
        print(f"The tests on Python {version} ...", flush=True)
        command = [environment(version, python), "-m", "pytest", *sys.argv[1:], *TESTS]
        if subprocess.run(command, check=False, cwd=ROOT).returncode != 0:
            failed.append(version)
    if failed:
        raise SystemExit(f"The tests failed on Python {', '.join(failed)}.")


if __name__ == "__main__":
    main()
