"""The page of the HTTP reference, from the OpenAPI document that the server sends."""

from __future__ import annotations

import json
import re
from typing import Any

from holdfast.http.openapi import describe
from holdfast.http.routes import endpoints

PAGE = "reference/http-routes.md"
START = """# HTTP routes and fields

All routes and objects of [`/openapi.json`](../openapi.json). The [HTTP API reference](http.md) explains them.
"""
PROBLEM = re.compile(r"`urn:holdfast:problem:([\w-]+)`")


def document() -> bytes:
    return describe(endpoints())


def page() -> str:
    """All routes, by the first part of their path, then all objects that they take and return."""
    api = json.loads(document())
    by_tag: dict[str, list[str]] = {}
    for path, operations in api["paths"].items():
        for method, operation in operations.items():
            by_tag.setdefault(operation["tags"][0], []).append(_route(method.upper(), path, operation))
    routes = [f"## {tag.capitalize()} routes\n\n" + "\n\n".join(texts) for tag, texts in by_tag.items()]
    schemas = [_object(name, schema) for name, schema in sorted(api["components"]["schemas"].items())]
    return "\n\n".join([START, *routes, "## Objects", *schemas]) + "\n"


def _route(method: str, path: str, operation: dict[str, Any]) -> str:
    parts = [f"### {method} {path}", " ".join([operation["summary"], operation.get("description", "")]).strip()]
    if operation["parameters"]:
        rows = [_parameter(each) for each in operation["parameters"]]
        parts.append(_table(["parameter", "in", "type", ""], rows))
    bodies = [["request", _content(operation["requestBody"])]] if "requestBody" in operation else []
    problems = []
    for status, answer in operation["responses"].items():
        named = PROBLEM.findall(answer["description"])
        problems += [f"`{name}` ({status})" for name in named]
        if not named:
            bodies.append([status, _content(answer) or "no body"])
    parts += [_table(["", "body"], bodies), f"[Problems](http.md#problems): {', '.join(problems)}."]
    return "\n\n".join(parts)


def _parameter(given: dict[str, Any]) -> list[str]:
    about = given.get("description") or given["schema"].get("description", "")
    name = f"`{given['name']}`" + (", required" if given["required"] else "")
    return [name, given["in"], _type(given["schema"]), about]


def _content(holder: dict[str, Any]) -> str:
    return ", ".join(
        _type(media["schema"]) if kind == "application/json" else f"`{kind}`"
        for kind, media in holder.get("content", {}).items()
    )


def _object(name: str, schema: dict[str, Any]) -> str:
    parts = [f"### {name}", schema.get("description", "")]
    if "enum" in schema:
        parts.append(_type(schema))
    required = schema.get("required", ())
    rows = [
        [f"`{field}`" + (", required" if field in required else ""), _type(about), about.get("description", "")]
        for field, about in schema.get("properties", {}).items()
    ]
    return "\n\n".join(filter(None, [*parts, _table(["field", "type", ""], rows) if rows else ""]))


def _type(schema: dict[str, Any]) -> str:
    """A JSON schema in words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower().replace('.', '')})"
    if "anyOf" in schema:
        return " or ".join(map(_type, schema["anyOf"])) + _default(schema)
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(value)}`" for value in schema["enum"]) + _default(schema)
    kind = schema.get("type", "any")
    if "prefixItems" in schema:  # of a tuple; `items` is then False
        return f"list of {', '.join(map(_type, schema['prefixItems']))}" + _default(schema)
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}" + _default(schema)
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'])}" + _default(schema)
    return (schema.get("format") or kind) + _range(schema) + _default(schema)


def _range(schema: dict[str, Any]) -> str:
    low = schema.get("minimum", schema.get("minLength"))
    high = schema.get("maximum", schema.get("maxLength"))
    unit = " characters" if schema.get("type") == "string" else ""
    if "exclusiveMinimum" in schema:
        return f" (over {schema['exclusiveMinimum']})"
    if low is not None and high is not None:
        return f" ({low} to {high}{unit})"
    return f" (at least {low}{unit})" if low is not None else f" (at most {high}{unit})" if high is not None else ""


def _default(schema: dict[str, Any]) -> str:
    return f", default `{json.dumps(schema['default'])}`" if schema.get("default") is not None else ""


def _table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
