"""The reference pages leave nothing out that is public."""

import re
from pathlib import Path

import pytest

import holdfast
import holdfast.core.errors
from holdfast import Claim, Context, Flow, FlowHandle, FlowStatus, Handle, Holdfast, Job, Node, Schedule, Task, Worker
from holdfast.cli.commands import COMMANDS
from holdfast.client.config import Config
from holdfast.flows.service import Flows
from holdfast.schedules.service import Schedules
from holdfast.tasks.task import Using
from holdfast.webhooks.service import Webhooks
from website.surface import surface

ROOT = Path(__file__).parent.parent
REFERENCE = ROOT / "docs" / "reference"
CALLED = {
    Claim: "claim.",
    Config: "app.config.",
    Context: "ctx.",
    Flow: "flow.",
    FlowHandle: "flow_handle.",
    Flows: "app.flows.",
    Handle: "handle.",
    Holdfast: "app.",
    Node: "node.",
    Schedules: "app.schedules.",
    Task: "task.",
    Using: "task.using(…).",
    Webhooks: "app.webhooks.",
    Worker: "worker.",
}
"""What each is called on the page."""


def read(page: str) -> str:
    return (REFERENCE / page).read_text(encoding="utf-8")


@pytest.mark.parametrize(("kind", "called"), CALLED.items(), ids=lambda given: getattr(given, "__name__", ""))
def test_whatever_one_may_ask_is_in_the_reference(kind, called):
    lines = "\n".join(line for line in read("python.md").splitlines() if f"`{called}" in line or f" {called}" in line)
    reported = {name for code in re.findall(r"`([^`\n]+)`", lines) for name in re.findall(r"\.(\w+)", code)}
    assert surface(kind) - reported == set()


def test_so_is_every_name_that_can_be_imported():
    words = set(re.findall(r"\w+", re.sub(r"```.*?```", "", read("python.md"), flags=re.DOTALL) + read("errors.md")))
    assert {name for name in holdfast.__all__ if name != "__version__"} - words == set()


@pytest.mark.parametrize(("kind", "page"), [(FlowStatus, "python.md"), (Schedule, "python.md"), (Job, "jobs.md")])
def test_so_is_every_field(kind, page):
    words = {word for code in re.findall(r"`([^`\n]+)`", read(page)) for word in re.findall(r"\w+", code)}
    assert {field for field in kind.__struct_fields__ if not field.startswith("_")} - words <= {
        "next",
        "limit_key",
        "last",
        "counted",
    }


def tree(text: str) -> dict[str, str]:
    """Every error of a drawn tree, with the one that it hangs from."""
    above = ["HoldfastError"]
    found = {"HoldfastError": "Exception"}
    for bars, name in re.findall(r"^((?:│   )*)[├└]── (\w+)", text, flags=re.MULTILINE):
        depth = 1 + len(bars) // 4
        found[name] = above[depth - 1]
        above[depth:] = [name]
    return found


@pytest.mark.parametrize("drawn", [read("errors.md"), holdfast.core.errors.__doc__], ids=["errors.md", "errors.py"])
def test_the_tree_of_errors_is_the_one_in_the_code(drawn):
    errors = [
        kind for kind in vars(holdfast.core.errors).values() if isinstance(kind, type) and issubclass(kind, Exception)
    ]
    assert tree(drawn) == {kind.__name__: kind.__bases__[0].__name__ for kind in errors}


def test_every_command_is_in_the_reference():
    reported = {
        word for code in re.findall(r"`([^`\n]+)`", read("command-line.md")) for word in re.findall(r"^[a-z]+", code)
    }
    assert set(COMMANDS) - reported == set()


def test_every_page_of_the_dashboard_is_opened_by_the_test_of_its_access():
    """The overview, the jobs and an incident are opened by name, with filters."""
    main = (ROOT / "src/holdfast/dashboard/static/main.js").read_text(encoding="utf-8")
    listed = main[main.index("const PAGES = [") : main.index("const KEYS = [")]
    pages = set(re.findall(r'^  \["(\w+)"', listed, flags=re.MULTILINE)) - {"overview", "jobs", "incident"}
    opened = (ROOT / "tests/dashboard/test_dashboard_access.py").read_text(encoding="utf-8")
    more = opened[opened.index("MORE = (") :].partition("\n")[0]
    assert pages == set(re.findall(r"#/(\w+)", more))
