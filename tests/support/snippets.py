"""The snippets of a documentation page: found in its source, and run in a fresh process and an empty folder.

- A `python` block is a complete program; with `# continues` as its first line it goes on with the page's previous one.
- `# app.py` as its first line names the file; what comes later on the page finds it in its folder.
- A `console` block is a shell session: `$ ` starts a command, `> ` continues it, the rest is output that must appear
  in that order, `…` standing for anything. Every command has to succeed.
- `python no-run: needs a server` is not run, and says why.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .ports import free_port

TIME_LIMIT = 60.0
PROGRAMS = Path(sys.executable).parent
"""The folder of `python`, `holdfast` and other commands in a session."""

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


def run(command: list[str], folder: Path, programs: Path = PROGRAMS, variables: Mapping[str, str] | None = None) -> str:
    """What the command prints, when it succeeds; whatever it leaves running is ended."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "PYTEST_"))}
    environment["PATH"] = os.pathsep.join([str(programs), environment.get("PATH", os.defpath)])
    environment |= variables or {}
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
    if snippet.language == "console":
        play(snippet, folder)
        return
    _write(snippet.files, folder)
    named = NAMED.match(snippet.text)
    program = folder / (named[1] if named else "snippet.py")
    program.write_text(snippet.text, encoding="utf-8")
    run([sys.executable, str(program)], folder)


def play(session: Snippet, folder: Path, programs: Path = PROGRAMS, variables: Mapping[str, str] | None = None) -> None:
    """Run a shell session; AssertionError where a command fails, or a promised line is not printed."""
    _write(session.files, folder)
    script, promised = session_of(on_free_ports(session.text))
    printed = run(["bash", "-c", script], folder, programs, variables)
    missing = missing_line(promised, printed)
    assert missing is None, f"not in the output, or not in this order: {missing!r}\n{printed}"


def _write(files: Mapping[str, str], folder: Path) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
