"""Renders a Helm chart by a Python implementation of Go's templates, in the environment of `deploy_tools`.

`render_chart.py FOLDER RELEASE` reads values from its input, and prints each template's text, both as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml
from gotpl.exts.helm import HelmTemplateEngine


def merged(defaults: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """As Helm merges values: tables key by key, everything else as a whole."""
    both = {name for name in given if isinstance(given[name], dict) and isinstance(defaults.get(name), dict)}
    return defaults | {name: merged(defaults[name], one) if name in both else one for name, one in given.items()}


def main(folder: str, release: str) -> None:
    chart = yaml.safe_load(Path(folder, "Chart.yaml").read_text())
    values = merged(yaml.safe_load(Path(folder, "values.yaml").read_text()), json.load(sys.stdin))
    sources = {path.name: path.read_text() for path in sorted(Path(folder, "templates").iterdir())}
    context = {
        "Values": values,
        "Chart": {name[0].upper() + name[1:]: value for name, value in chart.items()},
        "Release": {"Name": release, "Namespace": "default", "Service": "Helm", "Revision": 1, "IsInstall": True},
    }
    shown = [name for name in sources if not name.startswith("_")]
    json.dump(HelmTemplateEngine(sources, strict=True).render(dict.fromkeys(shown, context)), sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
