"""The software bill of materials of a release, in CycloneDX's JSON: `make sbom`.

It lists what Holdfast needs (`required`) and what its extras need (`optional`), in the tested versions.
"""

from __future__ import annotations

import itertools
import json
import re
import sys
import tomllib
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Locked:
    name: str
    version: str
    marker: str
    parents: frozenset[str]
    """What needs it: the comments of the lock."""

    @property
    def purl(self) -> str:
        return f"pkg:pypi/{self.name}@{self.version}"


def read_lock(text: str) -> list[Locked]:
    """The entries of a lock, in its order."""
    found = []
    for entry in re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)[1:]:
        head, _, rest = entry.partition("\n")
        name, version, marker = re.fullmatch(r"([\w.-]+)==(\S+)(?: ; (.*?))? *\\?", head).groups()
        parents = re.findall(r"^ +#(?: via)? +(\S.*)$", rest, flags=re.MULTILINE)
        found.append(Locked(name, version, marker or "", frozenset(parents)))
    return found


def names_of(requirements: Iterable[str]) -> set[str]:
    """The packages that requirements name, as a lock writes them."""
    return {re.split(r"[^\w.-]", one)[0].lower().replace("_", "-") for one in requirements}


def needed(lock: list[Locked], names: set[str]) -> list[Locked]:
    """The entries of these names, and what they need."""
    found = list[Locked]()
    while more := [one for one in lock if one not in found and ({one.name} | one.parents) & names]:
        found += more
        names = names | {one.name for one in more}
    return sorted(found, key=lambda one: one.purl)


def bill(project: dict[str, Any], run: list[Locked], dev: list[Locked], now: datetime) -> dict[str, Any]:
    """The document, from the project's table in pyproject.toml and the two locks."""
    product = f"pkg:pypi/{project['name']}@{project['version']}"
    core = names_of(project["dependencies"])
    declared = core | names_of(itertools.chain(*project["optional-dependencies"].values()))
    required = {one.name for one in needed(run, core)}
    everything = needed(dev, declared)

    def component(one: Locked) -> dict[str, Any]:
        scope = "required" if one.name in required else "optional"
        made = {"type": "library", "bom-ref": one.purl, "name": one.name, "version": one.version, "scope": scope}
        marker = {"properties": [{"name": "python:marker", "value": one.marker}]} if one.marker else {}
        return made | {"purl": one.purl} | marker

    def depends(parent: Locked) -> dict[str, Any]:
        return {"ref": parent.purl, "dependsOn": [one.purl for one in everything if parent.name in one.parents]}

    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid4()}",
        "version": 1,
        "metadata": {
            "timestamp": now.isoformat(timespec="seconds"),
            "component": {
                "type": "library",
                "bom-ref": product,
                "name": project["name"],
                "version": project["version"],
                "description": project["description"],
                "licenses": [{"license": {"id": project["license"]}}],
                "purl": product,
            },
        },
        "components": [component(one) for one in everything],
        "dependencies": [
            {"ref": product, "dependsOn": [one.purl for one in everything if one.name in declared]},
            *map(depends, everything),
        ],
    }


def main(folder: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    run, dev = (read_lock((ROOT / "requirements" / name).read_text()) for name in ("run.lock", "dev.lock"))
    file = Path(folder) / f"{project['name']}-{project['version']}.cdx.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(made := bill(project, run, dev, datetime.now(UTC)), indent=2) + "\n")
    print(f"{file}: {len(made['components'])} packages")


if __name__ == "__main__":
    main(*sys.argv[1:])
