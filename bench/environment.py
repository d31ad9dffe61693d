"""The peers' own virtual environments, made when they are missing or their requirements have changed."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).resolve().parent


def python_of(name: str) -> str:
    """The interpreter of the environment with the locked `requirements/{name}.txt`, the same Python as this one."""
    return _environment(sys.executable, name, name)


def newer_python_of(name: str, at_least: tuple[int, int]) -> str | None:
    """The same with a Python that is new enough for some of these peers; None where there is none."""
    base = _interpreter(at_least)
    return None if base is None else _environment(base, name, f"{name}-{'.'.join(map(str, at_least))}")


def _environment(base: str, name: str, folder_name: str) -> str:
    requirements = HERE / "requirements" / f"{name}.txt"
    folder = HERE / ".envs" / folder_name
    python, stamp = folder / "bin" / "python", folder / ".installed"
    wanted = hashlib.sha256(requirements.read_bytes() + _version(base).encode()).hexdigest()
    if not python.exists() or not stamp.exists() or stamp.read_text(encoding="ascii") != wanted:
        print(f"Installing the peers of requirements/{name}.txt ...", file=sys.stderr)
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([base, "-m", "venv", str(folder)], check=True)
        pip = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check"]
        # The lock is whole; without --no-deps pip 23 refuses `psycopg[pool]`, which one of these needs, as not pinned.
        subprocess.run([*pip, "install", "--require-hashes", "--no-deps", "-r", str(requirements)], check=True)
        stamp.write_text(wanted, encoding="ascii")
    return str(python)


def _interpreter(at_least: tuple[int, int]) -> str | None:
    """A Python of at least this version: this one, one on the path, or one that pyenv keeps."""
    if sys.version_info >= at_least:
        return sys.executable
    names = [f"python{at_least[0]}.{minor}" for minor in range(at_least[1], at_least[1] + 4)]
    kept = [Path.home() / ".pyenv" / "versions", Path.home() / ".local" / "share" / "uv" / "python"]
    places = [shutil.which(name) for name in names]
    places += [str(python) for name in names for folder in kept for python in sorted(folder.glob(f"*/bin/{name}"))]
    return next((place for place in places if place is not None and _version(place)), None)


def _version(python: str) -> str:
    """What it says of itself; nothing where it does not run (a pyenv shim without its version)."""
    ran = subprocess.run([python, "-c", "import sys; print(sys.version)"], capture_output=True, text=True, check=False)
    return ran.stdout.strip()


def versions_in(python: str, names: list[str]) -> dict[str, str]:
    """The installed versions of these packages."""
    script = f"from importlib.metadata import version\nfor name in {names!r}: print(version(name))"
    ran = subprocess.run([python, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    return dict(zip(names, ran, strict=True))


def own_versions(names: list[str]) -> dict[str, str]:
    return {name: version(name) for name in names}
