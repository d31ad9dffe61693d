"""Decisions are made from values: no code takes apart an error message, or what a job waits for."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "holdfast"
TAKEN_APART = {"startswith", "endswith", "removeprefix", "removesuffix", "partition", "rpartition", "split", "find"}
ERRORS = {"error", "last_error"}
FOREIGN = {
    "store/postgres/trouble.py": "pgbouncer says in words only that it is one",
    "store/redis/connect.py": "a Redis error that names another node has its address in its text",
    "store/redis/trouble.py": "the first word of a Redis error is its code",
    "store/redis/verdict.py": "a Redis that has no password says so in words only",
    "store/sqlite/connection.py": "SQLite says in words only that a text is not UTF-8",
}
"""Modules that read texts of other programs, which have no value to read instead."""


def is_prose(node: ast.expr) -> bool:
    """Whether an expression is the text of an error, or what a job waits for."""
    if isinstance(node, ast.BoolOp):
        return any(map(is_prose, node.values))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("str", "repr"):
        return any(isinstance(each, ast.Name) and each.id in ("error", "answer", "exc") for each in node.args)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("lower", "strip"):
        return is_prose(node.func.value)
    return isinstance(node, ast.Attribute) and node.attr in {*ERRORS, "waiting_for"}


def decisions(tree: ast.Module) -> list[int]:
    """The lines that take such a text apart, or look for one in it."""
    found: list[int] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in TAKEN_APART:
            found += [node.lineno] * is_prose(node.func.value)
        elif isinstance(node, ast.Compare) and any(isinstance(each, ast.In | ast.NotIn) for each in node.ops):
            found += [node.lineno] * any(map(is_prose, node.comparators))
    return found


def sources() -> list[str]:
    return [str(path.relative_to(PACKAGE)) for path in sorted(PACKAGE.rglob("*.py"))]


def test_no_decision_reads_an_error_message_or_a_prefix():
    found = {path: decisions(ast.parse((PACKAGE / path).read_text())) for path in sources() if path not in FOREIGN}
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "line",
    [
        'record.error.startswith("not run: ")',
        '(record.error or "").startswith("not run: ")',
        '"OOM" in str(error)',
        '"oom" not in str(error).lower()',
        'record.waiting_for.removeprefix("job:")',
    ],
)
def test_such_a_decision_would_be_found(line):
    assert decisions(ast.parse(line)) == [1]


@pytest.mark.parametrize("path", sorted(FOREIGN))
def test_the_exceptions_are_needed(path):
    assert decisions(ast.parse((PACKAGE / path).read_text()))
