"""Every snippet of README.md and docs/ runs as a test, in a fresh process and an empty folder.

- A `python` block is a complete program; with `# continues` as its first line it goes on with the page's previous one.
- `# app.py` as its first line names the file; what comes later on the page finds it in its folder.
- A `console` block is a shell session: `$ ` starts a command, `> ` continues it, the rest is output that must appear
  in that order, `…` standing for anything. Every command has to succeed.
- `python no-run: needs a server` is not run, and says why.
"""

import ast
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from support.ports import free_port

ROOT = Path(__file__).parent.parent
TIME_LIMIT = 60.0

FENCE = re.compile(r"(?P<indent>[ \t]*)(?P<ticks>`{3,})(?P<language>[\w-]*)[ \t]*(?P<remark>[^`]*)")
NAMED = re.compile(r"# ([\w/-]+\.py)\n")
SKIPPED = re.compile(r"no-run: \S")
PORT = re.compile(r"--port (\d+)")


@dataclass
class Snippet:
    page: str
    line: int
    language: str
    remark: str
    text: str
    files: dict[str, str] = field(default_factory=dict)
    """What the page has named so far."""

    @property
    def runs(self) -> bool:
        return not SKIPPED.match(self.remark)


def blocks_of(page: str, source: str) -> list[Snippet]:
    blocks: list[Snippet] = []
    lines = enumerate(source.splitlines(), start=1)
    for number, line in lines:
        if not (fence := FENCE.fullmatch(line)):
            continue
        body: list[str] = []
        for _, inner in lines:
            if inner.strip() == fence["ticks"]:
                break
            body.append(inner + "\n")
        blocks.append(Snippet(page, number, fence["language"], fence["remark"].strip(), textwrap.dedent("".join(body))))
    return blocks


def snippets_of(page: str, source: str) -> list[Snippet]:
    """The programs and sessions of a page, in order, continued blocks joined."""
    snippets: list[Snippet] = []
    program: Snippet | None = None
    files: dict[str, str] = {}
    for block in blocks_of(page, source):
        if block.language == "python":
            if not block.text.startswith("# continues\n"):
                program = block
                snippets.append(block)
            elif program is None:
                raise ValueError(f"{page}:{block.line} continues a Python block, but there is none before it")
            else:
                program.text += "\n" + block.text
            if name := NAMED.match(program.text):
                files[name[1]] = program.text
        elif block.language == "console":
            snippets.append(block)
        block.files = dict(files)
    return snippets


def session_of(text: str) -> tuple[str, list[str]]:
    """The commands of a console block as one script, and the lines it promises to print."""
    commands: list[str] = []
    promised: list[str] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            commands.append(line[2:])
        elif line.startswith("> ") and commands:
            commands[-1] += "\n" + line[2:]
        elif line.strip():
            promised.append(line.rstrip())
    return "\n".join(["set -e", *commands, ""]), promised


def on_free_ports(text: str) -> str:
    """The block with a free port in place of each that its commands name: two checkouts may be tested at once."""
    for port in set(PORT.findall(text)):
        text = re.sub(rf"\b{port}\b", str(free_port()), text)
    return text


def missing_line(promised: list[str], printed: str) -> str | None:
    """The first promised line that does not follow the ones before it."""
    rest = iter(printed.splitlines())
    for line in promised:
        pattern = re.compile(".*".join(re.escape(part) for part in line.split("…")))
        if not any(pattern.fullmatch(candidate.rstrip()) for candidate in rest):
            return line
    return None


def run(command: list[str], folder: Path) -> str:
    """What the command prints, when it succeeds; whatever it leaves running is ended."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "PYTEST_"))}
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", os.defpath)])
    # A file and not a pipe: a background process that keeps a pipe open would be waited for.
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            code = process.wait(TIME_LIMIT)
        except subprocess.TimeoutExpired:
            code = f"still running after {TIME_LIMIT:.0f} s"
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS: EPERM of a group that is gone
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        printed = output.read()
    assert code == 0, f"exit status: {code}\n{printed}"
    return printed


def check(snippet: Snippet, folder: Path) -> None:
    assert not snippet.remark, f"{snippet.remark!r}: write `no-run: ` and the reason"
    for name, text in snippet.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    if snippet.language == "python":
        named = NAMED.match(snippet.text)
        program = folder / (named[1] if named else "snippet.py")
        program.write_text(snippet.text, encoding="utf-8")
        run([sys.executable, str(program)], folder)
    else:
        script, promised = session_of(on_free_ports(snippet.text))
        printed = run(["bash", "-c", script], folder)
        missing = missing_line(promised, printed)
        assert missing is None, f"not in the output, or not in this order: {missing!r}\n{printed}"


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
    sources = [page.read_text() for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))]
    pictures = [picture.name for picture in (ROOT / "docs" / "images").iterdir()]
    assert [name for name in pictures if not any(name in source for source in sources)] == []


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
    rows = re.findall(r"^\| (.*`) ", (ROOT / "docs/operate/runbook.md").read_text(), flags=re.MULTILINE)
    rows += re.findall(r"^- \*\*Read\*\* (`.*?`):", (ROOT / "docs/operate/runbook.md").read_text(), flags=re.MULTILINE)
    quoted = [text for row in rows for text in re.findall(r"`([^`]* [^`]*)`", row.split(" | ")[0])]
    quoted = [text for text in quoted if not text.startswith("holdfast ")]
    assert len(quoted) > 15
    texts = texts_of_the_code()
    for text in quoted:
        parts = [part.strip() for part in re.split(r"…|\d+", text) if part.strip()]
        assert any(all(part in candidate for part in parts) for candidate in texts), text


def test_every_decision_has_the_same_headings_and_is_listed():
    folder = ROOT / "docs" / "adr"
    listed = []
    for page in sorted(folder.glob("0*.md")):
        first, _, status, _, *rest = page.read_text(encoding="utf-8").splitlines()
        headings = [line for line in rest if line.startswith("#")]
        assert headings == ["## Context", "## Decision", "## Consequences"], page.name
        number = re.fullmatch(r"# (\d{4}): (.+)", first)
        assert number, page.name
        assert re.fullmatch(r"Status: (accepted|obsolete, superseded by \[.+)", status), page.name
        listed.append(f"- [{number[1]}]({page.name}): {number[2]}" + (" (obsolete)" if "obsolete" in status else ""))
    lines = (folder / "README.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line.startswith("- ")] == listed
