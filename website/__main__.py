"""`make docs`: write the pages to build/pages, build the site in build/site, and add what machines read."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from website import http_reference, python_reference, stores
from website.pages import ROOT, Links, check_navigation, copy, navigation, sources, title_of

PAGES = ROOT / "build" / "pages"
SITE = ROOT / "build" / "site"
STYLE = ROOT / "website" / "site.css"
NO_PARAGRAPH = ("#", "|", "```", "- ", "<", "![", "[![", "Status: ")
ICON = ROOT / "src" / "holdfast" / "dashboard" / "static" / "icon.svg"


def main() -> None:
    texts, links = all_pages()
    check_navigation(set(texts))
    for folder in (PAGES, SITE):
        shutil.rmtree(folder, ignore_errors=True)
    for page, text in texts.items():
        write(PAGES / page, f"---\nmarkdown: {page}\n---\n\n{for_zensical(text)}")
    for target, file in links.files.items():
        copy(file, PAGES / target)
    copy(STYLE, PAGES / "assets" / "site.css")
    copy(ICON, PAGES / "assets" / "icon.svg")
    write(PAGES / "openapi.json", http_reference.document().decode())
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    if subprocess.run(command, cwd=ROOT, check=False).returncode:
        raise SystemExit("the site was not built: Zensical names the pages above")
    for page, text in texts.items():
        write(SITE / page, text)  # beside the page's folder, so that its links lead to Markdown too
    write(SITE / "llms.txt", index_for_models(texts))


def all_pages() -> tuple[dict[str, str], Links]:
    """The text of every page, those of the repository with the links of the site; and the files that they link to."""
    links = Links()
    texts = {
        page: links.rewrite((ROOT / source).read_text(encoding="utf-8"), source, page) + stores.sections(page, links)
        for page, source in sources().items()
    }
    return texts | python_reference.pages() | {http_reference.PAGE: http_reference.page()}, links


def for_zensical(text: str) -> str:
    """What GitHub and Zensical read differently.

    In the code of a table, GitHub needs a backslash before a bar; Zensical would show it. In HTML, GitHub reads
    Markdown after an empty line; Zensical only where the element says so.
    """
    rows = re.compile(r"^\|.*$", re.MULTILINE)
    text = rows.sub(lambda row: re.sub(r"`[^`]+`", lambda code: code[0].replace("\\|", "|"), row[0]), text)
    return re.sub(r"^<details>$", "<details markdown>", text, flags=re.MULTILINE)


def index_for_models(texts: dict[str, str]) -> str:
    """llms.txt: the sections of the navigation, with the Markdown of each page and its first sentence."""
    lines = ["# Holdfast", "", f"> {summary(texts['index.md'])}"]
    for section, pages in navigation().items():
        lines += ["", f"## {section}", ""]
        lines += [f"- [{title_of(texts[page])}]({page}): {summary(texts[page])}" for page in pages]
    return "\n".join(lines) + "\n"


def summary(text: str) -> str:
    """The first sentence of the first paragraph, without its links."""
    paragraphs = (" ".join(part.split()) for part in text.split("\n\n"))
    first = next(part for part in paragraphs if part and not part.startswith(NO_PARAGRAPH))
    return re.split(r"(?<=\.)\s", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", first))[0]


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
