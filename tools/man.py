"""The manual page: `make man` writes docs/man/holdfast.1 from the help of the commands. The wheel installs it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer
from typer.main import get_command

from holdfast.cli import main as command_line
from holdfast.cli.commands import GROUPS, app
from holdfast.version import __version__

PAGE = Path(__file__).parent.parent / "docs" / "man" / "holdfast.1"
INTRODUCTION = """\
Holdfast is a job queue for Python. It stores jobs in SQLite, Postgres, Redis or an object storage bucket.
A command uses the store of --url, else HOLDFAST_URL, else the file holdfast.db in the current folder."""
ENVIRONMENT = {
    "HOLDFAST_URL": "The store, if --url is not given.",
    "HOLDFAST_TOKEN": "The token for a store at an http URL, and of `holdfast serve`.",
    "HOLDFAST_LOG_LEVEL": "DEBUG, INFO, WARNING or ERROR; for workers and servers.",
}


def text() -> str:
    """The page in the format of man(7)."""
    root: Any = get_command(app)
    lines = [
        f'.TH HOLDFAST 1 "" "holdfast {__version__}" "User Commands"',
        ".SH NAME", r"holdfast \- a durable job queue",
        ".SH SYNOPSIS", r".B holdfast", r"[\fIOPTIONS\fR] \fICOMMAND\fR [\fIARGUMENTS\fR]",
        ".SH DESCRIPTION", *map(_plain, INTRODUCTION.splitlines()),
        ".SH OPTIONS", *_options(root, _context(root, "holdfast"), shared=True),
        ".PP", _plain("Every command but init and demo accepts --url and --app before and after its name."),
    ]  # fmt: skip
    for title, group in GROUPS.items():
        lines.append(f".SH {title.upper()}")
        for name in group:
            lines += _command(root.commands[name], f"holdfast {name}")
    lines.append(".SH ENVIRONMENT")
    for name, meaning in ENVIRONMENT.items():
        lines += [".TP", f".B {name}", _plain(meaning)]
    codes = (command_line.__doc__ or "").partition("Exit codes: ")[2].strip()
    return "\n".join([*lines, ".SH EXIT STATUS", _plain(codes), ""])


def _command(command: Any, path: str) -> list[str]:
    below = [line for name, one in getattr(command, "commands", {}).items() for line in _command(one, f"{path} {name}")]
    if below and not command.invoke_without_command:
        return [f".SS {path}", *_prose(command.help), *below]
    context = _context(command, path)
    usage = "[OPTIONS]" if below else " ".join(command.collect_usage_pieces(context))
    own = [f".SS {path}", f".B {path}", _plain(usage), ".PP", *_prose(command.help), *_options(command, context)]
    return own + below


def _context(command: Any, path: str) -> Any:
    return typer.Context(command, info_name=path)


def _options(command: Any, context: Any, *, shared: bool = False) -> list[str]:
    parameters = [one for one in command.get_params(context) if shared or one.name not in ("url", "app", "help")]
    records = (parameter.get_help_record(context) for parameter in parameters)
    return [
        line for names, meaning in filter(None, records) for line in (".TP", f".B {_plain(names)}", _plain(meaning))
    ]


def _prose(text: str | None) -> list[str]:
    paragraphs = (text or "").strip().split("\n\n")
    return [line for one in paragraphs for line in (*map(_plain, one.splitlines()), ".PP")]


def _plain(line: str) -> str:
    """A line in which roff finds no command of its own."""
    line = line.strip().replace("\\", r"\e").replace("-", r"\-").replace("…", "...")
    return rf"\&{line}" if line.startswith((".", "'")) else line


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(text(), encoding="utf-8")
