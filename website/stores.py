"""The end of a store's page: its guarantees and its figures, from the pages that have those of all stores."""

from __future__ import annotations

import re

from website.pages import ROOT, Links

GUARANTEES = "docs/explain/promises.md"
FIGURES = "bench/README.md"
STORES = {
    "operate/sqlite.md": ("SQLite", "sqlite"),
    "guides/postgres.md": ("Postgres", "postgres"),
    "guides/redis.md": ("Redis", "redis"),
    "guides/bucket.md": ("bucket", "bucket"),
    "guides/remote.md": ("`http://` stores", "http"),
}
"""The page of each store: its column or line among the guarantees, and the name of its figures."""


def sections(page: str, links: Links) -> str:
    """What the page of a store gets; nothing for another page."""
    if page not in STORES:
        return ""
    store, figures = STORES[page]
    guarantees = links.rewrite(_guarantees(store), GUARANTEES, page)
    measured = links.rewrite(_figures(figures), FIGURES, page)
    return f"""
## Guarantees

[Guarantees](../explain/promises.md) compares the stores.

{guarantees}

## Figures

[Benchmarks](../benchmarks.md) says how they are measured.

{measured}
"""


def _guarantees(store: str) -> str:
    lines = (ROOT / GUARANTEES).read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.split("|")] for line in lines if line.startswith("|")]
    if store in rows[0]:
        column = rows[0].index(store)
        return "\n".join(f"| {row[1]} | {row[2]} | {row[column]} |" for row in rows)
    return next(line for line in lines if line.startswith(f"- **{store}**"))


def _figures(name: str) -> str:
    text = (ROOT / FIGURES).read_text(encoding="utf-8")
    section = re.search(rf"<!-- figures: {name} -->\n(.*?)<!-- end of figures: {name} -->", text, re.DOTALL)
    return section[1].strip()
