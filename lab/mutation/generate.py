"""Mutants of one source file, by its syntax tree, in the order of the file.

What cannot change behaviour, or only its texts or its timing, is left alone: docstrings, annotations, code for type
checkers, log lines, messages of errors, assertions (`zip(…, strict=True)` is one), decorators, `__repr__`, module
constants, how long a pause is, a choice between texts for people, and the order of arguments that are compared.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.LShift: ast.RShift,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
PAUSES = {"sleep", "timeout", "wait_for", "call_later"}
"""Calls whose numbers say how long something takes: no test may assert a time."""
NOT_SWAPPED = {"isinstance", "issubclass", "getattr", "setattr", "hasattr", "compare_digest"}
"""Calls that fail at once where their arguments are swapped, or do the same."""
LOGGERS = {"logger", "log", "logging", "warnings"}
TEXT_METHODS = {"__repr__", "__rich_repr__", "__str__"}


@dataclass(frozen=True)
class Mutant:
    """One change: the text between two places (line, byte of the line) becomes another."""

    file: str
    kind: str
    start: tuple[int, int]
    end: tuple[int, int]
    old: str
    new: str
    line: str
    """The whole line in which it begins."""

    @property
    def key(self) -> str:
        """What it is called in results; it holds for as long as the line stays where it is."""
        return f"{self.file}:{self.start[0]}:{self.start[1]} {self.kind}: {_short(self.old)} → {_short(self.new)}"

    def applied(self, source: str) -> str:
        lines = source.encode().splitlines(keepends=True)
        (first, begin), (last, end) = self.start, self.end
        head, tail = lines[first - 1][:begin], lines[last - 1][end:]
        return b"".join([*lines[: first - 1], head, self.new.encode(), tail, *lines[last:]]).decode()


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= 80 else f"{flat[:38]} … {flat[-38:]}"


def mutants(file: str, source: str) -> list[Mutant]:
    """All mutants of a file; some are not Python any more (`compiles`)."""
    found: dict[str, Mutant] = {}
    lines = source.encode().splitlines(keepends=True)
    for kind, node, new in _changes(ast.parse(source)):
        start, end = (node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)
        mutant = Mutant(file, kind, start, end, _segment(lines, start, end), new, lines[start[0] - 1].decode().strip())
        if mutant.old != new:
            found.setdefault(mutant.key, mutant)
    return sorted(found.values(), key=lambda one: (one.start, one.kind, one.new))


def _segment(lines: list[bytes], start: tuple[int, int], end: tuple[int, int]) -> str:
    if start[0] == end[0]:
        return lines[start[0] - 1][start[1] : end[1]].decode()
    first, *middle, last = lines[start[0] - 1 : end[0]]
    return b"".join([first[start[1] :], *middle, last[: end[1]]]).decode()


def compiles(source: str) -> bool:
    try:
        compile(source, "mutant", "exec")
    except SyntaxError:
        return False
    return True


def function_at(source: str, line: int) -> int:
    """The first line, by decorators too, of the innermost function around a line; 0 where it is in none."""
    found = 0
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(mark.lineno for mark in node.decorator_list)])
            if first <= line <= (node.end_lineno or 0):
                found = max(found, first)
    return found


def _changes(tree: ast.Module) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _inside(node)


def _inside(node: ast.AST) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
    """The mutants of a node, then those of what is in it."""
    if _is_idle(node):
        return
    if isinstance(node, ast.expr):
        yield from _of_expression(node)
    elif isinstance(node, ast.stmt):
        yield from _of_statement(node)
    for child in _parts(node):
        yield from _inside(child)


def _parts(node: ast.AST) -> Iterator[ast.AST]:
    """What is in a node, without annotations, decorators and what only says how a class is made."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        yield from (each for each in (*node.args.defaults, *node.args.kw_defaults) if each is not None)
        first = node.name == "__init__"  # without the first value of an attribute nothing works
        yield from (each.value if first and isinstance(each, ast.Assign) else each for each in node.body)
    elif isinstance(node, ast.ClassDef):
        yield from node.body
    elif isinstance(node, ast.AnnAssign):
        yield from () if node.value is None else (node.value,)
    elif isinstance(node, ast.Call) and _name(node.func) in PAUSES:
        yield from (each for each in node.args if not isinstance(each, ast.Constant))
    else:
        yield from ast.iter_child_nodes(node)


def _is_idle(node: ast.AST) -> bool:
    """Whether no change of this node is of interest."""
    match node:
        case ast.JoinedStr() | ast.Assert() | ast.Import() | ast.ImportFrom() | ast.Pass():
            return True  # (the places of what is in an f-string are wrong in Python 3.11)
        case ast.Raise():
            return True  # its text; the statement itself goes with the condition before it
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.Call(func=func) if _root(func) in LOGGERS or _name(func) in {"cast", "TypeVar", "ParamSpec"}:
            return True
        case ast.If(test=test) if _name(test) == "TYPE_CHECKING":
            return True
        case ast.keyword(arg="strict"):
            return True
        case ast.IfExp(body=body, orelse=orelse) if _is_prose(body) or _is_prose(orelse):
            return True
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if name in TEXT_METHODS:
            return True
        case ast.FunctionDef(decorator_list=marks) | ast.AsyncFunctionDef(decorator_list=marks) if any(
            _name(mark) == "overload" for mark in marks
        ):
            return True
        case ast.ClassDef(bases=bases) if any(_name(base) in {"Protocol", "TypedDict"} for base in bases):
            return True
        case _:
            return False


def _name(node: ast.AST) -> str:
    if isinstance(node, ast.Subscript | ast.Call):
        return _name(node.value if isinstance(node, ast.Subscript) else node.func)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _root(node: ast.AST) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _of_expression(node: ast.expr) -> Iterator[tuple[str, ast.expr, str]]:
    match node:
        case ast.Compare():
            changed = copy.deepcopy(node)
            changed.ops[0] = COMPARISONS[type(node.ops[0])]()
            yield "comparison", node, f"({ast.unparse(changed)})"
        case ast.BoolOp(op=op, values=values):
            other = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield "boolean", node, f"({ast.unparse(ast.BoolOp(other, values))})"
            for number in range(len(values)):
                rest = values[:number] + values[number + 1 :]
                one = rest[0] if len(rest) == 1 else ast.BoolOp(op, rest)
                yield "condition left out", node, f"({ast.unparse(one)})"
        case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC and not _is_text(left, right):
            yield "arithmetic", node, f"({ast.unparse(ast.BinOp(left, ARITHMETIC[type(op)](), right))})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "negation", node, f"({ast.unparse(operand)})"
        case ast.Constant(value=bool() as value):
            yield "constant", node, repr(not value)
        case ast.Constant(value=int() | float() as value):
            yield "constant", node, repr(value + 1)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            yield "condition", node, f"({ast.unparse(ast.IfExp(test, orelse, body))})"
        case ast.Call(func=ast.Name(id="min" | "max" as name)):
            other = copy.deepcopy(node)
            other.func = ast.Name("max" if name == "min" else "min")
            yield "bound", node, ast.unparse(other)
        case ast.Call(args=[first, second, *_]) if not any(isinstance(each, ast.Starred) for each in node.args):
            if _name(node.func) not in NOT_SWAPPED and ast.dump(first) != ast.dump(second):
                swapped = copy.deepcopy(node)
                swapped.args[:2] = [second, first]
                yield "arguments", node, ast.unparse(swapped)
        case _:
            return


def _is_text(*nodes: ast.expr) -> bool:
    return any(isinstance(each, ast.JoinedStr | ast.Constant) and not _is_number(each) for each in nodes)


def _is_prose(node: ast.expr) -> bool:
    """Whether it is a text for people: one with a space."""
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    return any(isinstance(each, ast.Constant) and isinstance(each.value, str) and " " in each.value for each in parts)


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)


def _of_statement(node: ast.stmt) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
    match node:
        case ast.If(test=test):
            yield "condition", test, f"(not ({ast.unparse(test)}))"
            if (
                not node.orelse
                and len(node.body) == 1
                and isinstance(node.body[0], ast.Raise | ast.Return | ast.Continue)
            ):
                yield "guard", node, "pass"
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield "return", node, "return None"
        case ast.Expr(value=ast.Call() | ast.Await() as value) if not _is_idle(_called(value)) and (
            _name(_called(value)) not in PAUSES
        ):
            yield "statement", node, "pass"
        case ast.AugAssign():
            yield "statement", node, "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield "statement", node, "pass"
        case ast.With(items=[item]) | ast.AsyncWith(items=[item]) if item.optional_vars is None:
            body = "\n".join(ast.unparse(each) for each in node.body)
            indent = " " * (node.col_offset + 4)
            yield "context", node, "if True:\n" + "\n".join(f"{indent}{line}" for line in body.splitlines())
        case ast.Continue() | ast.Break():
            yield "statement", node, "pass"
        case _:
            return


def _called(node: ast.expr) -> ast.AST:
    return node.value if isinstance(node, ast.Await) else node
