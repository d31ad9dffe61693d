"""The pages of the Python reference, from the signatures and docstrings in the source."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator

import holdfast
import holdfast.testing
from holdfast import HoldfastError
from holdfast.app import Given
from holdfast.client.bulk import Bulk
from holdfast.client.config import Config
from holdfast.client.errors import ErrorGroups
from holdfast.client.timeseries import Timeseries
from holdfast.flows.service import Flows
from holdfast.schedules.service import RuleOptions, Schedules
from holdfast.tasks.options import BatchOptions, JobOptions, TaskOptions
from holdfast.tasks.task import Using
from holdfast.views import AttemptInfo, LimitInfo, Progress, StepInfo, WorkerInfo
from holdfast.webhooks.service import Webhooks
from website.surface import surface

Documented = type | Callable
Function = ast.FunctionDef | ast.AsyncFunctionDef


def named(*names: str) -> list[Documented]:
    return [getattr(holdfast, name) for name in names]


def errors() -> list[Documented]:
    found = (getattr(holdfast, name) for name in holdfast.__all__)
    return [kind for kind in found if isinstance(kind, type) and issubclass(kind, HoldfastError)]


PAGES: dict[str, tuple[str, list[Documented]]] = {
    "app": ("App", [*named("Holdfast"), Given, Config, Bulk, ErrorGroups, Timeseries, Webhooks]),
    "tasks": (
        "Tasks",
        [*named("Task"), Using, TaskOptions, BatchOptions, JobOptions, *named("limit", "Backoff", "Depends")],
    ),
    "context": ("Context", named("Context", "Retry", "Snooze", "Discard")),
    "jobs": (
        "Jobs",
        [
            *named("Handle", "as_completed", "Chunk", "Job", "State", "Claim", "Filter", "Page", "Stats"),
            AttemptInfo,
            LimitInfo,
            Progress,
            StepInfo,
            WorkerInfo,
        ],
    ),
    "flows": ("Flows", [*named("Flow", "Node", "FlowHandle", "FlowStatus", "FlowPage"), Flows]),
    "schedules": ("Schedules", [Schedules, *named("Schedule"), RuleOptions]),
    "worker": ("Worker", named("Worker")),
    "errors": ("Errors", errors()),
    "testing": ("Testing", [getattr(holdfast.testing, name) for name in holdfast.testing.__all__]),
}
"""What each page documents, after its title."""
MADE_BY_USERS = {*named("Holdfast", "Worker", "Flow", "Retry", "Snooze", "Discard")}
"""Classes whose constructor users call; of the others, they get objects. Those of fields are not listed."""


def pages() -> dict[str, str]:
    """The text of each page."""
    return {f"reference/api/{name}.md": page(title, documented) for name, (title, documented) in PAGES.items()}


def page(title: str, documented: list[Documented]) -> str:
    names = ", ".join(f"`{each.__name__}`" for each in documented)
    start = f"Signatures and docstrings of {names}. The [Python API reference](../python.md) is the overview."
    return "\n\n".join([f"# {title} API", start, *map(described, documented)]) + "\n"


def described(documented: Documented) -> str:
    """A class with its fields and methods, or a function."""
    node = tree_of(documented)
    if isinstance(node, Function):
        return "\n\n".join([f"## {node.name}", code(signature(node)), prose(ast.get_docstring(node))])
    parts = [f"## {node.name}", code(heading_of(documented, node)), prose(ast.get_docstring(node))]
    shown = surface(documented) | set(getattr(documented, "__annotations__", ()))
    known = dict(members(documented))
    rows = [field_row(*known[name]) for name in known if name in shown and not isinstance(known[name][0], Function)]
    if rows:
        parts.append("\n".join(["| field | type | |", "| --- | --- | --- |", *rows]))
    for name, (member, _) in known.items():
        if name in shown and isinstance(member, Function):
            parts += [f"### {node.name}.{name}", code(signature(member)), prose(ast.get_docstring(member))]
    return "\n\n".join(part for part in parts if part)


def tree_of(documented: Documented) -> ast.ClassDef | Function:
    return ast.parse(textwrap.dedent(inspect.getsource(documented))).body[0]


def members(kind: type) -> Iterator[tuple[str, tuple[ast.stmt, str]]]:
    """The fields and methods of a class and of its bases in the package, each with the text below a field."""
    for base in getattr(kind, "__orig_bases__", kind.__bases__):
        if isinstance(base, type) and base.__module__.startswith("holdfast."):
            yield from members(base)
    body = tree_of(kind).body
    for node, below in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, Function) and not decorated(node, "overload", "setter"):
            yield node.name, (node, "")
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            is_text = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
            yield ast.unparse(target), (node, inspect.cleandoc(below.value.value) if is_text else "")


def decorated(node: Function, *names: str) -> bool:
    return any(re.split(r"[.(]", ast.unparse(each))[-1] in names for each in node.decorator_list)


def heading_of(kind: type, node: ast.ClassDef) -> str:
    """`class Name(parameters)` where users make one, else with the bases that tell what it is."""
    made = dict(members(kind)).get("__init__")
    if kind in MADE_BY_USERS and made is not None:
        return "class " + listed(node.name, parameters(made[0]), "")
    bases = [base.__name__ for base in kind.__bases__ if base.__name__ not in ("object", "Struct", "Generic", "dict")]
    return f"class {node.name}({', '.join(bases)})" if bases else f"class {node.name}"


def signature(node: Function) -> str:
    returned = ast.unparse(node.returns) if node.returns else ""
    if decorated(node, "property"):
        return f"{node.name}: {returned}"
    waits = isinstance(node, ast.AsyncFunctionDef)
    if returned.startswith("Coroutine[Any, Any, "):
        waits, returned = True, returned.removeprefix("Coroutine[Any, Any, ").removesuffix("]")
    return ("async " if waits else "") + listed(node.name, parameters(node), f" -> {returned}" if returned else "")


def listed(name: str, given: list[str], end: str) -> str:
    """A call in one line, or a parameter to a line."""
    line = f"{name}({', '.join(given)}){end}"
    return line if len(line) <= 80 else f"{name}(\n    " + ",\n    ".join(given) + f",\n){end}"


def parameters(node: Function) -> list[str]:
    """The parameters as they are written, without `self`."""
    given = node.args
    plain = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(plain) - len(given.defaults)) + given.defaults
    found = [parameter(each, default) for each, default in zip(plain, defaults, strict=True)]
    if given.posonlyargs:
        found.insert(len(given.posonlyargs), "/")
    if given.vararg:
        found.append("*" + parameter(given.vararg, None))
    elif given.kwonlyargs:
        found.append("*")
    found += [parameter(each, default) for each, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    if given.kwarg:
        found.append("**" + parameter(given.kwarg, None))
    if found and found[0] in ("self", "cls"):
        found = found[2:] if found[1:2] == ["/"] else found[1:]
    return found


def parameter(arg: ast.arg, default: ast.expr | None) -> str:
    kind = f": {ast.unparse(arg.annotation)}" if arg.annotation else ""
    equals = " = " if kind else "="
    return arg.arg + kind + (f"{equals}{ast.unparse(default)}" if default is not None else "")


def field_row(node: ast.stmt, text: str) -> str:
    kind = value = ""
    if isinstance(node, ast.AnnAssign):
        name, annotation = ast.unparse(node.target), node.annotation
        if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Annotated":
            annotation = annotation.slice.elts[0]  # the rest is how Holdfast checks it
        kind = ast.unparse(annotation)
    else:
        name = ast.unparse(node.targets[0])
    if node.value is not None:
        value = f" = {ast.unparse(node.value)}"
    cells = [f"`{name}`", f"`{kind}{value}`".replace("` = ", "`"), prose(text).replace("\n", " ")]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def code(text: str) -> str:
    return f"```python\n{text}\n```"


def prose(text: str | None) -> str:
    """A docstring as Markdown: signs that would be read as HTML are escaped, outside of code."""
    parts = re.split(r"(`[^`]*`)", text or "")
    return "".join(part if part.startswith("`") else part.replace("<", "&lt;") for part in parts)
