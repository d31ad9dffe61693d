"""The reference has every route with its role, and every problem with its status."""

from __future__ import annotations

from pathlib import Path

from holdfast.http import problems, protocol, routes

PAGE = (Path(__file__).parent.parent.parent / "docs" / "reference" / "http.md").read_text()


def test_the_reference_has_every_route():
    for endpoint in routes.endpoints():
        assert f"|`{endpoint.method} {endpoint.path}` | {endpoint.role or 'none'} |" in PAGE, (
            f"docs/reference/http.md has no row for {endpoint.method} {endpoint.path}"
        )


def test_the_reference_has_every_problem():
    kinds = [
        kind for module in (problems, protocol) for kind in vars(module).values() if isinstance(kind, problems.Kind)
    ]
    assert len(kinds) > 20
    for kind in kinds:
        assert f"|`{kind.name}` | {kind.status} |" in PAGE, kind
