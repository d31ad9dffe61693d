"""Figures about the structure of a source tree that can be read from its files; nothing of the tree is imported."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

VALUES = {"Protocol", "Struct", "TypedDict", "NamedTuple", "Enum", "IntEnum", "StrEnum", "Generic", "object"}
"""A class that comes from one of these, or from an error, is a value or a shape, and no service."""

OPTIONS = {
    *("queue", "priority", "max_attempts", "timeout", "retry", "delay", "at", "key", "tags", "meta", "connection"),
    *("unique", "unique", "replace", "debounce", "debounce_max", "expires", "limit"),
}
"""The options of a job, by the names that a caller uses."""
MANY_OPTIONS = 8
"""Options that a place must name to count: fewer are a choice of some."""
NOT_OPTIONS = ("core", "store", "observe", "views.py", "view.py", "job.py", "lifecycle.py", "schedule_kept.py")
"""Where the same words are fields of a stored job, or of an answer about one."""

PREFIXES = {"startswith", "endswith", "removeprefix", "removesuffix"}
PARSERS = PREFIXES | {"partition", "rpartition", "split", "rsplit", "find", "index", "match", "search", "fullmatch"}
PARSED = re.compile(r"\b(waiting_for|waiting_for|error|exc|exception|reason|message)\b")
"""What a decision must not read as text: errors, and what a job waits for."""
ONE_PARSER = ("core/waiting.py",)
"""The one place that writes and reads what a job waits for as text."""
FORMATS = {
    "a URL, a host or an address": r"(url|scheme|base|endpoint|path)\.startswith|^_?address\.|host\.|^ours\.|'/'\)$"
    r"|'file:'",
    "a name in Python, a module or a file": r"^(name|file|part|error\.name|spec\.name|module_name|id|\(module_name)"
    r"\b.*(with\(.*(\.py|__main__|'_'|'\.'|_OWN_FOLDER|error\.name)|\.py)|rpartition\(':'\)\[0\]\.endswith\('\.py'\)",
    "a path of a file system": r"^folder\.startswith|^quote|^whole\.",
    "an HTTP header, a route or a problem type of the protocol": r"'W/'|'/v1'|problem\.type|EVENTS"
    r"|CSRF_HEADER_NAME",
    "a line of /proc, of a child process or of a stream": r"b'pid |b'\\n'|mark_of\(|entry\.startswith\(prefix\)",
    "a cron line": r"^(minute|hour)\.startswith\('\*'\)",
    "the format of an engine's own keys, values and messages": r"b'\\x00'|_PLAIN|_OWN\b|_LOG|_MARK|MAGIC|DAMAGED_ID"
    r"|key\.(startswith|remove)|self\._path|'hint '|self\._head|b'-'|'cert_'|'job/'|'queue/'|'allkeys'|'#'",
    "a name for people: a metric, an event, a command, a token": r"PREFIX\)|'job_'|command_path|'hf_'|RESERVED"
    r"|'transactional'|removeprefix\('\.'\)|'_total'",
    "the end of a text for people, which is left out": r"partition\('\\n'\)|removesuffix\(', '\)",
    "the id of a job in a flow, which begins with the flow's": r"\{flow\}\.",
}
"""Prefixes that may be compared, each with what they belong to: none says why a job waits or failed."""

FOREIGN = {
    "'unsupported startup parameter' in str(error)": "pgbouncer gives every refusal the same code",
    "str(cause).startswith(_NO_SERVER)": "as above",
    "str(error).partition(' ')": "the first word of an error of Redis is its code",
    "'OOM' in str(error)": "as above, inside the error of a script",
    "'unknown command' in str(error).lower()": "its code is ERR, as that of most errors",
}
"""Texts of errors that are read because the server that wrote them gives no better code."""
REASONS = re.compile(r"""['"](?:l[a]ne|limit_key|signal|job|begin|flow|pause):""")
"""Why a job waits, spelled out."""


class Class(NamedTuple):
    """A class of the package, or of elsewhere (`module` is empty then)."""

    module: str
    name: str


def modules(package: Path) -> Iterator[tuple[str, ast.Module]]:
    """Every module but those of `testing/`, by its path in the package."""
    for file in sorted(package.rglob("*.py")):
        name = file.relative_to(package).as_posix()
        if not name.startswith("testing/"):
            yield name, ast.parse(file.read_text())


def named(node: ast.expr) -> str:
    """The last name of `a.b.c[…]`."""
    while isinstance(node, ast.Subscript | ast.Call):
        node = node.value if isinstance(node, ast.Subscript) else node.func
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def inheritance(package: Path) -> list[list[str]]:
    """Chains of services, from a class that nobody inherits from up to its last parent in the package."""
    parents = _parents(package)

    def ancestors(found: Class) -> set[str]:
        names = {found.name}
        for parent in parents.get(found, ()):
            if parent != found:
                names |= ancestors(parent)
        return names

    def is_service(found: Class) -> bool:
        return found in parents and not any(
            each in VALUES or each.endswith(("Error", "Exception", "Warning")) for each in ancestors(found)
        )

    def chain(found: Class) -> list[Class]:
        above = [chain(parent) for parent in parents[found] if parent != found and is_service(parent)]
        return [found, *max(above, key=len, default=[])]

    chains = [whole for found in parents if is_service(found) and len(whole := chain(found)) > 1]
    inherited = {each for whole in chains for each in whole[1:]}
    named_chains = ([each.name for each in whole] for whole in chains if whole[0] not in inherited)
    return sorted(named_chains, key=lambda names: (-len(names), names))


def _parents(package: Path) -> dict[Class, list[Class]]:
    """The base classes of each class. A base is looked for where the module has its name from: two may share one."""
    trees = dict(modules(package))
    parents: dict[Class, list[Class]] = {}
    nodes = [
        (module, node) for module, tree in trees.items() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    ]
    known = {Class(module, node.name) for module, node in nodes}
    first = {each.name: each for each in sorted(known, reverse=True)}
    for module, node in nodes:
        given = {
            alias.asname or alias.name: Class(source, alias.name)
            for each in ast.walk(trees[module])
            if isinstance(each, ast.ImportFrom)
            for source in _sources(module, each)
            for alias in each.names
            if Class(source, alias.name) in known
        }
        bases = parents.setdefault(Class(module, node.name), [])
        foreign = {
            alias.name for each in ast.walk(trees[module]) if isinstance(each, ast.Import) for alias in each.names
        }
        for base in node.bases:
            name = named(base)
            here = Class(module, name)
            if isinstance(base, ast.Attribute) and named(base.value) in foreign:  # such as sqlite3.Connection
                bases.append(Class("", name))
            else:
                bases.append(here if here in known else given.get(name) or first.get(name) or Class("", name))
    return parents


def _sources(module: str, node: ast.ImportFrom) -> list[str]:
    """The files that `from … import` may mean, in a module of the package."""
    folder = module.split("/")[: -node.level] if node.level else []
    parts = (node.module or "").split(".") if node.module else []
    path = "/".join([*folder, *(parts if node.level else parts[1:])])
    return [f"{path}.py", f"{path}/__init__.py".lstrip("/")]


def text_decisions(package: Path) -> dict[str, str]:
    """Lines that test the beginning of a string, or parse an error or what a job waits for."""
    found: dict[str, str] = {}
    for name, tree in modules(package):
        if name in ONE_PARSER:
            continue
        for node in ast.walk(tree):
            text = ""
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in PARSERS:
                text = ast.unparse(node)
                read = ast.unparse(node.args[-1]) if named(node.func.value) == "re" else ast.unparse(node.func.value)
                wanted = node.func.attr in PREFIXES or PARSED.search(read)
                text = text if wanted else ""
            elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
                inside, literal = node.comparators[0], node.left
                if isinstance(literal, ast.Constant) and isinstance(literal.value, str) and _is_text(inside):
                    text = ast.unparse(node)
            elif (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and (REASONS.search(node.value) or REASONS.fullmatch(f"'{node.value}"))
            ):
                text = f"spells out {node.value!r:.40}"
            if text and text not in FOREIGN and not any(re.search(pattern, text) for pattern in FORMATS.values()):
                found.setdefault(f"{name}:{node.lineno}", text)  # type: ignore[attr-defined]
    for file in sorted([*package.rglob("*.lua"), *package.rglob("*.sql")]):
        for line, text in enumerate(file.read_text().splitlines(), start=1):
            if REASONS.search(text.partition("--")[0]):
                found[f"{file.relative_to(package)}:{line}"] = text.strip()
    return found


def _is_text(node: ast.expr) -> bool:
    text = ast.unparse(node)
    return bool(PARSED.search(text)) and ("str(" in text or text.endswith((".error", ".waiting_for")))


def option_places(package: Path) -> list[str]:
    """Functions, classes and tables that name at least `MANY_OPTIONS` of a job's options, with how many."""
    found = []
    for name, tree in modules(package):
        if name.partition("/")[0] in NOT_OPTIONS:
            continue
        for node in ast.walk(tree):
            names: list[str] = []
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                names = [each.arg for each in (*node.args.args, *node.args.kwonlyargs)]
            elif isinstance(node, ast.ClassDef):
                names = [each.target.id for each in node.body if _is_field(each)]  # type: ignore[union-attr]
            elif isinstance(node, ast.Dict):
                names = [each.value for each in node.keys if isinstance(each, ast.Constant)]  # type: ignore[misc]
            elif isinstance(node, ast.Tuple | ast.List | ast.Set):
                names = [each.value for each in node.elts if isinstance(each, ast.Constant)]  # type: ignore[misc]
            elif isinstance(node, ast.Call):
                names = [each.arg for each in node.keywords if each.arg is not None]
            count = len(OPTIONS & {each for each in names if isinstance(each, str)})
            if count >= MANY_OPTIONS:
                what = getattr(node, "name", None) or (named(node) if isinstance(node, ast.Call) else "a table")
                found.append(f"{name}:{node.lineno} {what} ({count})")  # type: ignore[attr-defined]
    return found


def blocking_methods(package: Path) -> dict[str, int]:
    """Lines of each method and property that is written out in a class of the blocking API.

    Not counted: what is made from an async method in one line (`name = blocking(Service.name)`), how it is made
    (functions outside a class), and special methods such as constructors, which no async method has.
    """
    found: dict[str, int] = {}
    for name, tree in modules(package):
        if not re.match(r"sync(/|\w*\.py$)", name):
            continue
        for kind in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
            for node in kind.body:
                if isinstance(node, ast.FunctionDef) and not node.name.startswith("__"):
                    first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
                    place = f"{name}:{first} {kind.name}.{node.name}"
                    found[place] = (node.end_lineno or node.lineno) - first + 1
    return found


def _is_field(node: ast.stmt) -> bool:
    return isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)


def session_places(package: Path) -> tuple[list[str], list[str]]:
    """Where `session` is taken from an app: by others, and by a class that the app inherits from."""
    parts = {name for chain in inheritance(package) if chain[0] == "Holdfast" for name in chain} | {"Holdfast"}
    others, own = [], []
    for name, tree in modules(package):
        classes = {
            inner: node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for inner in ast.walk(node)
        }
        for node in ast.walk(tree):
            if not isinstance(node, ast.Attribute) or node.attr not in ("session", "_session"):
                continue
            who = named(node.value)
            if who.lstrip("_").endswith(("app", "holdfast")) or who == "cast":
                others.append(f"{name}:{node.lineno}")
            elif who == "self" and classes.get(node) in parts:
                own.append(f"{name}:{node.lineno}")
    return others, own


def constants(package: Path) -> Iterator[tuple[str, str, float, str | None]]:
    """Numeric constants of modules: module, name, value, and the docstring below it."""
    for module, tree in modules(package):
        for node, below in zip(tree.body, [*tree.body[1:], None], strict=True):
            if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
                continue
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            several = isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
            pairs = zip(target.elts, node.value.elts, strict=True) if several else [(target, node.value)]  # type: ignore[attr-defined]
            said = below.value if isinstance(below, ast.Expr) else None
            doc = said.value if isinstance(said, ast.Constant) and isinstance(said.value, str) else None
            for name, given in pairs:
                if isinstance(name, ast.Name) and (value := number(given)) is not None:
                    yield module, name.id, value, doc


def number(node: ast.expr) -> float | None:
    """The value of a constant expression of numbers, such as `7 * 86400.0`."""
    arithmetic = ast.BinOp | ast.UnaryOp | ast.Constant | ast.operator | ast.unaryop
    if not all(isinstance(each, arithmetic) for each in ast.walk(node)):
        return None
    value = eval(compile(ast.Expression(node), "", "eval"), {"__builtins__": {}})  # numbers and operators alone
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _positions(text: str) -> list[str]:
    """Fields of a Lua text that are taken by their number: `pair[2]`, `call(…)[2]`, `entry.fields[4]`.

    `list[1]` is the first element and no field, where nothing else of that table is taken by a number. KEYS and ARGV
    have their places from the call.
    """
    found = [
        (name, number) for name, number in re.findall(r"(\w+|[)\]])\[(\d+)\]", text) if name not in ("KEYS", "ARGV")
    ]
    records = {name for name, number in found if number != "1" and name not in (")", "]")}
    return [f"{name}[{number}]" for name, number in found if number != "1" or name in records]


def restated(package: Path) -> tuple[list[str], list[str]]:
    """Positions of fields in Lua as bare numbers; and constants of Python that Lua or SQL defines again."""
    known: dict[str, set[float]] = defaultdict(set)
    for _, name, value, _ in constants(package):
        known[name].add(value)
    positions: list[str] = []
    twice: list[str] = []
    for file in sorted([*package.rglob("*.lua"), *package.rglob("*.sql")]):
        text = re.sub(r"--.*", "", file.read_text())
        if file.suffix == ".lua":
            positions += [f"{file.relative_to(package)}: {place}" for place in _positions(text)]
        for name, given in re.findall(r"\b([A-Z][A-Z_]{2,})\b[\w\s]*?:?=\s*([\d_.]+(?:\s*\*\s*\d+)*)", text):
            value = number(ast.parse(given, mode="eval").body) or 0
            if any(name in (each, each.removesuffix("_LIMIT")) and value in known[each] for each in known):
                twice.append(f"{file.relative_to(package)}: {name} = {given}")
    return positions, twice


def field_files(package: Path, field: str) -> list[str]:
    """Files that name a stored field of a job."""
    files = (file for kind in ("*.py", "*.sql", "*.lua") for file in package.rglob(kind))
    names = ((file, file.relative_to(package).as_posix()) for file in files)
    return sorted(
        name for file, name in names if not name.startswith("testing/") and re.search(rf"\b{field}\b", file.read_text())
    )


def limit_rules(package: Path) -> dict[str, int]:
    """Lines of the files that have the rules of limits, by language."""
    lines: Counter[str] = Counter()
    for file in [*package.glob("core/*"), *package.glob("store/**/*")]:
        language = {".py": "Python", ".sql": "PL/pgSQL", ".lua": "Lua"}.get(file.suffix)
        if language and re.search(r"limit|l[a]ne|gate|standing|ready_queue|turn|fair", file.stem):
            lines[language] += len(file.read_text().splitlines())
    return dict(lines)


def lines(files: list[Path]) -> tuple[int, int, int]:
    """Lines; those that are not blank; and those that are neither blank nor comment nor docstring."""
    total = written = code = 0
    for file in files:
        text = file.read_text()
        total += text.count("\n")
        written += sum(bool(line.strip()) for line in text.splitlines())
        kept: set[int] = set()
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type not in (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT):
                kept.update(range(token.start[0], token.end[0] + 1) if token.string else ())
        for node in ast.walk(ast.parse(text)):
            if (
                isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            ):
                kept -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        code += len(kept)
    return total, written, code
