"""A plain search of the documentation finds the right page first.

The ranking is that of a simple search of a docs site: pages with the words in their title, then pages with the words in
more of their headings, then pages that contain the words more often. All pages take part, decisions included.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
GLOSSARY = "docs/reference/glossary.md"

FENCED = re.compile(r"^[ \t]*(`{3,}).*?^[ \t]*\1[ \t]*$", re.DOTALL | re.MULTILINE)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
"""A search sees the text of a link, not its target."""

FEATURES = {
    "heartbeat": "docs/operate/workers.md",
    "dead letter": "docs/operate/dead-letters.md",
    "rate limit": "docs/guides/limits.md",
    "concurrency": "docs/guides/limits.md",
    "exactly once": "docs/explain/exactly-once.md",
    "idempotency": "docs/guides/options.md",
    "unique": "docs/guides/unique-jobs.md",
}
"""Words that Holdfast uses, and the page that explains each."""

FOREIGN = {
    "visibility timeout": "docs/operate/workers.md",
    "countdown": "docs/guides/scheduling.md",
    "eta": "docs/guides/scheduling.md",
    "chord": "docs/guides/flows.md",
    "prefetch": "docs/operate/workers.md",
}
"""Words of other systems, and the page to which their entry in the glossary links."""


def words(query: str) -> re.Pattern[str]:
    """Whole words, in singular or plural, separated by spaces, line ends or hyphens."""
    return re.compile(r"\b" + r"[\s-]+".join(map(re.escape, query.split())) + r"s?\b", re.IGNORECASE)


def score(source: str, query: str) -> tuple[bool, int, int]:
    found = words(query)
    text = LINK.sub(r"\1", source)
    title, *headings = HEADING.findall(FENCED.sub("", text))
    return (
        found.search(title) is not None,
        sum(found.search(heading) is not None for heading in headings),
        len(found.findall(text)),
    )


def ranked(query: str) -> list[str]:
    """The pages that contain the words, best first; none of two equal pages is first."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    scores = {str(page.relative_to(ROOT)): score(page.read_text(encoding="utf-8"), query) for page in pages}
    hits = sorted((page for page in scores if scores[page] > (False, 0, 0)), key=scores.__getitem__, reverse=True)
    tied = len(hits) > 1 and scores[hits[0]] == scores[hits[1]]
    return ["", *hits] if tied else hits


@pytest.mark.parametrize(("query", "page"), FEATURES.items(), ids=FEATURES)
def test_the_page_that_explains_a_word_is_found_first(query, page):
    assert ranked(query)[:1] == [page]


@pytest.mark.parametrize(("query", "page"), FOREIGN.items(), ids=FOREIGN)
def test_the_page_behind_a_word_of_another_system_is_found(query, page):
    assert ranked(query)[:1] in ([GLOSSARY], [page])
    entries = (ROOT / GLOSSARY).read_text(encoding="utf-8").split("\n- ")
    (entry,) = (entry for entry in entries if words(query).search(entry.partition("**:")[0]))
    targets = [(ROOT / GLOSSARY).parent / link for link in re.findall(r"\]\(([^)#]+)", entry)]
    assert ROOT / page in [target.resolve() for target in targets]


def test_a_title_counts_more_than_headings_and_headings_more_than_text():
    title, heading = "# Plums\n", "# Fruit\n\n## A plum\n"
    text = "# Fruit\n\nplum plum-plum\n\n```\n# plum\n```\n[other](plum.md) plumage\n"
    assert [score(page, "plum") for page in (title, heading, text)] == [(True, 0, 1), (False, 1, 1), (False, 0, 4)]
    assert score("# Tree\n\na plum\ntree, plum-trees\n", "plum tree") == (False, 0, 2)
