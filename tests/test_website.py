"""What the documentation site is made of: a navigation with every page, links between pages, generated references."""

from __future__ import annotations

import json

import pytest

import holdfast
from website import http_reference, python_reference
from website.__main__ import all_pages, index_for_models, summary
from website.pages import Links, check_navigation, navigation
from website.surface import surface


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    return all_pages()[0]


def test_the_navigation_has_every_page_once(texts):
    check_navigation(set(texts))


def test_a_page_that_the_navigation_lacks_is_named(texts):
    with pytest.raises(SystemExit, match=r"zensical\.toml: guides/new\.md is not in nav"):
        check_navigation({*texts, "guides/new.md"})
    with pytest.raises(SystemExit, match=r"changelog\.md is in nav, but there is no such page"):
        check_navigation(set(texts) - {"changelog.md"})


@pytest.mark.parametrize(
    ("link", "rewritten"),
    [
        ("[a](../guides/tasks.md#retries)", "[a](../guides/tasks.md#retries)"),
        ("[a](../../README.md#stores)", "[a](../index.md#stores)"),
        ("[a](../adr/README.md)", "[a](../adr/index.md)"),
        ("[a](../../deploy/compose.yaml)", "[a](../files/deploy/compose.yaml.txt)"),
        ("[a](../../examples/django)", "[a](../files/examples/django.txt)"),
        ("[![a](../images/a.png)](https://example.com/x.md)", "[![a](../images/a.png)](https://example.com/x.md)"),
        ('<img alt="a" src="../images/a.png">', '<img alt="a" src="../images/a.png">'),
        ("[a](#here) `x[0](../../README.md)`", "[a](#here) `x[0](../../README.md)`"),
        ("```console no-run: why\n[a](../../README.md)\n```", "```console\n[a](../../README.md)\n```"),
    ],
)
def test_links_between_files_become_links_between_pages(link, rewritten):
    assert Links().rewrite(link, "docs/operate/workers.md", "operate/workers.md") == rewritten


def test_a_folder_outside_of_docs_moves_its_links():
    links = Links()
    assert links.rewrite("[a](results/README.md)", "lab/README.md", "lab.md") == "[a](lab-results.md)"
    assert links.rewrite("[a](docs/images/b.png)", "README.md", "index.md") == "[a](images/b.png)"
    assert [*links.files] == ["images/b.png"]


def test_the_page_of_each_store_ends_with_its_guarantees_and_figures(texts):
    page = texts["operate/sqlite.md"]
    guarantees = page[page.index("\n## Guarantees\n") : page.index("\n## Figures\n")]
    assert "| **D** | after `enqueue` returns, the job survives… | `kill -9` of any process" in guarantees
    assert "synchronous_commit" not in guarantees, "that is the column of Postgres"
    assert "`python -m bench sqlite`" in page[page.index("\n## Figures\n") :]
    assert "as the store behind `holdfast serve`" in texts["guides/remote.md"]


def test_the_python_reference_has_every_public_name_and_method():
    pages = "\n".join(python_reference.pages().values())
    documented = [kind for _, kinds in python_reference.PAGES.values() for kind in kinds]
    for name in {*holdfast.__all__, *holdfast.testing.__all__} - {"__version__"}:
        assert f"\n## {name}\n" in pages, name
    for kind in filter(lambda kind: isinstance(kind, type), documented):
        methods = {name for name in surface(kind) if name in vars(kind) and callable(getattr(kind, name))}
        lacking = {name for name in methods if f"\n### {kind.__name__}.{name}\n" not in pages}
        assert not lacking, f"{kind.__name__}: {lacking}"


def test_a_signature_is_as_in_the_source():
    page = python_reference.pages()["reference/api/app.md"]
    assert "```python\nasync job(id: str) -> Job\n```\n\nOne job as it is now." in page
    assert "async enqueue(fn: Any, /, *args: Any, **kwargs: Any) -> Handle[Any]" in page
    assert "async pause(\n    queue: str | None = None,\n    *,\n    task: str | None = None,\n" in page


def test_the_http_reference_has_every_route_and_object():
    page, api = http_reference.page(), json.loads(http_reference.document())
    for path, operations in api["paths"].items():
        for method in operations:
            assert f"\n### {method.upper()} {path}\n" in page
    for name, schema in api["components"]["schemas"].items():
        text = page[page.index(f"\n### {name}\n") :]
        assert all(f"| `{field}`" in text for field in schema.get("properties", ())), name


def test_the_index_for_models_lists_the_markdown_of_every_page(texts):
    index = index_for_models(texts)
    assert index.startswith("# Holdfast\n\n> Holdfast is ")
    for page in (page for section in navigation().values() for page in section):
        assert f"]({page}): " in index


def test_a_summary_is_the_first_sentence():
    text = "# Plums\n\nStatus: accepted\n\n```python\n1\n```\n\nA [plum](tree.md) is\nsweet. It has a stone.\n"
    assert summary(text) == "A plum is sweet."
