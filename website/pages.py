"""The pages of the site: the file of each, its links, and the other files that it links to."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
NAVIGATION = ROOT / "zensical.toml"
ELSEWHERE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "bench/README.md": "benchmarks.md",
    "deploy/README.md": "operate/deployment-files.md",
    "lab/README.md": "lab.md",
    "lab/results/README.md": "lab-results.md",
}
"""Pages that are not in docs/."""
PICTURES = {".gif", ".jpg", ".png", ".svg", ".webp"}

BLOCK = re.compile(r"^([ \t]*)(`{3,})([\w-]*)[^\n`]*\n(.*?)^[ \t]*\2[ \t]*$", re.DOTALL | re.MULTILINE)
LINK = re.compile(
    r"(?P<code>`+)(?:(?!\n\n).)+?(?P=code)"
    r"|(?<=\]\()(?P<link>[^)\s]+)(?=\))"
    r'|\s(?:src|srcset|href)="(?P<html>[^"]+)"',
    re.DOTALL,
)
"""The target of a link, in Markdown or HTML; code, which has none, matches first."""
TITLE = re.compile(r"^# (.+)$", re.MULTILINE)


def sources() -> dict[str, str]:
    """Every page that is a file of the repository, and that file."""
    found = {page: source for source, page in ELSEWHERE.items()}
    for file in sorted((ROOT / "docs").rglob("*.md")):
        page = file.relative_to(ROOT / "docs").as_posix()
        found[page.replace("README.md", "index.md")] = f"docs/{page}"
    return found


def navigation() -> dict[str, list[str]]:
    """The pages of each section, as the navigation has them."""
    sections = tomllib.loads(NAVIGATION.read_text(encoding="utf-8"))["project"]["nav"]
    return {title: _pages_of(entry) for section in sections for title, entry in section.items()}


def _pages_of(entry: str | list | dict) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    entries = entry.values() if isinstance(entry, dict) else entry
    return [page for each in entries for page in _pages_of(each)]


def check_navigation(pages: set[str]) -> None:
    """Raise an error unless the navigation has every page, once."""
    listed = [page for section in navigation().values() for page in section]
    wrong = [f"{page} is in nav twice" for page in sorted({page for page in listed if listed.count(page) > 1})]
    wrong += [f"{page} is not in nav" for page in sorted(pages - set(listed))]
    wrong += [f"{page} is in nav, but there is no such page" for page in sorted(set(listed) - pages)]
    if wrong:
        raise SystemExit("\n".join(f"{NAVIGATION.name}: {line}" for line in wrong))


def title_of(text: str) -> str:
    return TITLE.search(text)[1]


class Links:
    """Rewrites the links of repository files to those of the site, and collects the files that are not pages."""

    def __init__(self) -> None:
        self._pages = {source: page for page, source in sources().items()}
        self.files: dict[str, Path] = {}
        """Files to copy, by their path in the site; a folder is copied as one text."""

    def rewrite(self, text: str, source: str, page: str) -> str:
        """The text of a source as it reads on a page. Blocks lose the remarks that only tests read."""

        def changed(match: re.Match[str]) -> str:
            link = match["link"] or match["html"]
            return match[0] if link is None else match[0].replace(link, self._target(link, source, page))

        parts, end = [], 0
        for block in BLOCK.finditer(text):
            indent, fence, language, body = block.groups()
            parts += [LINK.sub(changed, text[end : block.start()]), f"{indent}{fence}{language}\n{body}{indent}{fence}"]
            end = block.end()
        return "".join([*parts, LINK.sub(changed, text[end:])])

    def _target(self, link: str, source: str, page: str) -> str:
        name, hash_sign, anchor = link.partition("#")
        if "://" in link or not name:
            return link
        file = os.path.normpath(Path(source).parent / name)
        if file in self._pages:
            return _relative(self._pages[file], page) + hash_sign + anchor
        target = self._copied(file)
        self.files[target] = ROOT / file
        return _relative(target, page)

    def _copied(self, file: str) -> str:
        if Path(file).suffix in PICTURES:
            return file.removeprefix("docs/")
        return f"files/{file}.txt"  # a browser shows it, whatever the server knows of its type


def _relative(target: str, page: str) -> str:
    return os.path.relpath(target, Path(page).parent)


def copy(file: Path, target: Path) -> None:
    """Copy a file; of a folder, all of its tracked files as one text."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if file.is_file():
        target.write_bytes(file.read_bytes())
        return
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z", str(file)]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    texts = [f"# {name}\n\n{(ROOT / name).read_text(encoding='utf-8')}" for name in listed if name]
    target.write_text("\n\n".join(texts), encoding="utf-8")
