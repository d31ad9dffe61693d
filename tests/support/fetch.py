"""Servers for tests that no wheel has: `python tests/support/fetch.py` unpacks them below .venv, without root.

Debian's Redis, pgbouncer and Prometheus, with the libraries that this machine lacks, Azurite from npm, and the tools
that check deploy/ and .github/. What is here stays.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    sys.path[0] += "/.."  # this folder's own modules are `support`'s, not everybody's

import getpass
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / ".venv" / "servers"


def unpacked(package: str, program: str) -> str | None:
    """The path of a program of a Debian package, where it was fetched."""
    found = FOLDER / package / program
    return str(found) if found.exists() else None


def environment(program: str) -> dict[str, str]:
    """For a program that was unpacked, not installed: its libraries are beside it."""
    folders = Path(program).resolve().parents[1].glob("lib/*-linux-gnu*")
    fetched = Path(program).resolve().is_relative_to(FOLDER)
    return os.environ | ({"LD_LIBRARY_PATH": ":".join(map(str, folders))} if fetched else {})


def unpack(packages: Sequence[str]) -> None:
    """Debian's packages and what they need that is not installed here, each in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="holdfast-packages-") as made:
        work = Path(made)
        for folder in ("state/lists/partial", "cache/archives/partial"):
            (work / folder).mkdir(parents=True)
        places = {
            "Dir::State": work / "state",
            "Dir::State::status": "/var/lib/dpkg/status",
            "Dir::Cache": work / "cache",
            "APT::Sandbox::User": getpass.getuser(),
        }
        apt = ["apt-get", "-qq", *(word for name, place in places.items() for word in ("-o", f"{name}={place}"))]
        subprocess.run([*apt, "update"], check=True)
        for package in packages:
            command = [*apt, "--simulate", "--no-install-recommends", "install", package]
            plan = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
            needed = [line.split()[1] for line in plan if line.startswith("Inst ")]
            folder = work / package
            folder.mkdir()
            subprocess.run([*apt, "download", package, *needed], cwd=folder, check=True)
            for archive in folder.glob("*.deb"):
                subprocess.run(["dpkg", "-x", archive, folder / "root"], check=True)
            shutil.rmtree(folder / "root" / "usr" / "share", ignore_errors=True)  # 200 MB of Prometheus's own pages
            FOLDER.mkdir(parents=True, exist_ok=True)
            shutil.move(folder / "root", FOLDER / package)


def main() -> None:
    """Fetch what is missing; what cannot be had is named, and its tests are skipped."""
    from support import azurite, deploy_tools, pgbouncer, prometheus, redis

    debian = {
        "redis-server": redis.redis_binary,
        "pgbouncer": pgbouncer.binary,
        "prometheus": prometheus.binary,
    }
    missing = [package for package, binary in debian.items() if binary() is None]
    attempts = [(", ".join(missing), lambda: unpack(missing))] if missing else []
    if azurite.script() is None:
        attempts.append(("Azurite", azurite.fetch))
    if not deploy_tools.installed():
        attempts.append(("the tools for deployment files", deploy_tools.fetch))
    for name, attempt in attempts:
        print(f"Fetching {name} for tests ...", flush=True)
        try:
            attempt()
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"Could not fetch {name}: {error}. Tests that need it are skipped.", file=sys.stderr)


if __name__ == "__main__":
    main()
