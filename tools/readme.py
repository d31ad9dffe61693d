"""Build hook: the README of a distribution has absolute links, because a package index does not have the files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

PROJECT = "holdfast-queue/holdfast"
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!\w+:)([^)\s]+)\)")
"""A Markdown link or picture whose target is not a URL."""


def absolute(text: str, version: str) -> str:
    """The text with links to the files of a version."""

    def replaced(found: re.Match[str]) -> str:
        picture, label, target = found.groups()
        page = target if not target.startswith("#") else f"README.md{target}"
        place = (
            f"https://raw.githubusercontent.com/{PROJECT}/v{version}/{page}"
            if picture
            else f"https://github.com/{PROJECT}/blob/v{version}/{page}"
        )
        return f"{picture}[{label}]({place})"

    return LINK.sub(replaced, text)


class Readme(MetadataHookInterface):
    """Sets the field `readme` of the project."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute(text, metadata["version"])}
