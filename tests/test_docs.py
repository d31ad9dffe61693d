"""Every snippet of README.md and docs/ runs as a test; `support/snippets.py` says how. Links lead somewhere."""

import ast
import re
from pathlib import Path

import pytest

from support.snippets import FENCE, Snippet, check, snippets_of

ROOT = Path(__file__).parent.parent


def documented() -> list[Snippet]:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    sources = [(str(page.relative_to(ROOT)), page.read_text(encoding="utf-8")) for page in pages if page.exists()]
    return [snippet for page, source in sources for snippet in snippets_of(page, source) if snippet.runs]


@pytest.mark.extended
@pytest.mark.parametrize("snippet", documented(), ids=lambda snippet: f"{snippet.page}:{snippet.line}")
def test_snippet(snippet: Snippet, tmp_path: Path):
    check(snippet, tmp_path)


PAGE = """
```python
# shop/app.py
price = 3
```
1. And on:
   ```python
   # continues
   assert price == 3
   ```
```text
$ false
```
```python no-run: needs a server
raise SystemExit(1)
```
```console
$ python -c "from shop.app import price; print(price, 'crowns')"
> echo done
3 cr…s
done
```
"""


def test_blocks_are_continued_named_and_left_out(tmp_path: Path):
    program, left_out, session = snippets_of("page.md", PAGE)
    assert (program.line, left_out.line, session.line) == (2, 14, 17)
    assert not left_out.runs
    check(program, tmp_path)
    check(session, tmp_path)


@pytest.mark.parametrize(
    "block",
    [
        "```python\nraise SystemExit(3)\n```",
        "```python no-run\npass\n```",
        "```console\n$ false\n$ true\n```",
        "```console\n$ echo a; echo b\nb\na\n```",
    ],
    ids=["exit status", "no reason", "failed command", "order"],
)
def test_a_wrong_snippet_fails(block: str, tmp_path: Path):
    (snippet,) = snippets_of("page.md", block)
    with pytest.raises(AssertionError):
        check(snippet, tmp_path)


LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"#+ (.+)")


def prose_of(source: str) -> str:
    """The page without its blocks."""
    lines, fence = [], ""
    for line in source.splitlines():
        if fence:
            fence = "" if line.strip() == fence else fence
        elif found := FENCE.fullmatch(line):
            fence = found["ticks"]
        else:
            lines.append(line)
    return "\n".join(lines)


def anchors_of(page: Path) -> set[str]:
    headings = [match[1] for line in prose_of(page.read_text()).splitlines() if (match := HEADING.fullmatch(line))]
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_link_leads_to_a_file_and_a_heading():
    wrong = []
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for link in LINK.findall(prose_of(page.read_text(encoding="utf-8"))):
            if "://" in link:
                continue
            name, _, anchor = link.partition("#")
            target = (page.parent / name).resolve() if name else page
            if not target.exists() or (anchor and anchor not in anchors_of(target)):
                wrong.append(f"{page.relative_to(ROOT)}: {link}")
    assert not wrong, "\n".join(wrong)


def test_every_picture_is_shown():
    pages = (ROOT / "README.md", ROOT / "bench" / "README.md", *(ROOT / "docs").rglob("*.md"))
    sources = [page.read_text(encoding="utf-8") for page in pages]
    pictures = [picture.name for picture in (ROOT / "docs" / "images").iterdir()]
    assert [name for name in pictures if not any(name in source for source in sources)] == []


MAX_WORDS = 40_000


def test_the_pages_have_at_most_40_000_words():
    """As `wc -w` counts them, without docs/migrate, decisions and the pages for contributors."""
    sections = ("start", "guides", "operate", "explain", "reference")
    pages = [ROOT / "README.md", *(page for name in sections for page in (ROOT / "docs" / name).rglob("*.md"))]
    words = {str(page.relative_to(ROOT)): len(page.read_text(encoding="utf-8").split()) for page in pages}
    longest = sorted(words, key=words.__getitem__, reverse=True)[:10]
    assert sum(words.values()) <= MAX_WORDS, f"shorten one of {', '.join(longest)}"


def test_options_come_before_sync():
    """`task.using(…).sync.enqueue(…)`, as `task.using(…).enqueue(…)`: one order in all examples."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    assert [page.name for page in pages if ".sync.using(" in page.read_text(encoding="utf-8")] == []


def texts_of_the_code() -> list[str]:
    """Every text in the source, with a NUL for each value that an f-string inserts."""
    found = []
    for file in (ROOT / "src" / "holdfast").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                found.append(
                    "".join(str(part.value) if isinstance(part, ast.Constant) else "\0" for part in node.values)
                )
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return found


def test_every_message_that_the_runbook_quotes_is_in_the_code():
    rows = re.findall(r"^\|(.*`) ", (ROOT / "docs/operate/runbook.md").read_text(), flags=re.MULTILINE)
    rows += re.findall(r"^- \*\*Read\*\* (`.*?`):", (ROOT / "docs/operate/runbook.md").read_text(), flags=re.MULTILINE)
    quoted = [text for row in rows for text in re.findall(r"`([^`]* [^`]*)`", row.split(" | ")[0])]
    quoted = [text for text in quoted if not text.startswith("holdfast ")]
    assert len(quoted) > 15
    texts = texts_of_the_code()
    for text in quoted:
        parts = [part.strip() for part in re.split(r"…|\d+", text) if part.strip()]
        assert any(all(part in candidate for part in parts) for candidate in texts), text


STATUS = r"Status: (accepted(; \[\d{4}\]\(\d{4}-[a-z0-9-]+\.md\) (adds|changes) .+)?|obsolete, superseded by \[.+)"


def test_every_decision_has_the_same_headings_and_is_listed():
    folder = ROOT / "docs" / "adr"
    listed = []
    for page in sorted(folder.glob("0*.md")):
        first, _, status, _, *rest = page.read_text(encoding="utf-8").splitlines()
        headings = [line for line in rest if line.startswith("#")]
        assert headings == ["## Context", "## Decision", "## Consequences"], page.name
        number = re.fullmatch(r"# (\d{4}): (.+)", first)
        assert number, page.name
        assert re.fullmatch(STATUS, status), page.name
        listed.append(f"- [{number[1]}]({page.name}): {number[2]}" + (" (obsolete)" if "obsolete" in status else ""))
    lines = (folder / "README.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line.startswith("- ")] == listed
