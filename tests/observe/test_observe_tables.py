"""The tables of the documentation match the code."""

import logging
import re
from pathlib import Path

import msgspec

from holdfast.core.settings import PARSERS, Settings
from holdfast.observe.events import KINDS, Event, JobEvent, RequestEvent
from holdfast.observe.tally import METRICS
from holdfast.webhooks.service import EVENTS

DOCS = Path(__file__).parent.parent.parent / "docs"


def rows(page, first):
    """The cells of rows whose first cell matches a name pattern."""
    found = {}
    for line in (DOCS / page).read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and (name := re.fullmatch(f"`({first})`", cells[0])):
            found[name[1]] = cells[1:]
    return found


def test_the_table_of_events_matches_the_code():
    table = rows("reference/events.md", "[a-z_]+")
    table = {name: cells for name, cells in table.items() if name in KINDS or len(cells) == 3}
    assert list(table) == list(KINDS)
    for name, (level, when, *fields) in table.items():
        kind = KINDS[name]
        assert (level, when) == (logging.getLevelName(kind.level), kind.when)
        assert tuple(re.findall(r"`(\w+)`", " ".join(fields))) == kind.fields


def test_every_field_of_an_event_is_explained():
    page = (DOCS / "reference/events.md").read_text()
    for shape in (Event, *Event.__subclasses__()):
        for field in msgspec.structs.fields(shape):
            assert field.name == "name" or f"`{field.name}`" in page, field.name
    assert {*JobEvent.__struct_fields__, *RequestEvent.__struct_fields__}.isdisjoint({"payload", "result", "meta"})


def test_the_table_of_metrics_matches_the_code():
    table = rows("reference/metrics.md", "holdfast_[a-z_]+")
    assert list(table) == list(METRICS)
    for name, (kind, labels, words) in table.items():
        metric = METRICS[name]
        assert (kind, words) == (metric.kind, metric.help)
        assert tuple(re.findall(r"`(\w+)`", labels)) == metric.labels


def test_every_expression_in_the_docs_uses_existing_metrics():
    for page in ("operate/metrics.md", "operate/deployment.md"):
        for name in re.findall(r"holdfast_(?:jobs|job|lease|worker|http|queue|store)_\w+", (DOCS / page).read_text()):
            assert re.sub(r"_(bucket|sum|count)$", "", name) in METRICS, name


def test_every_setting_is_in_the_table_of_settings():
    table = rows("operate/settings.md", "HOLDFAST_[A-Z_]+")
    assert {f"HOLDFAST_{name.upper()}" for name in PARSERS} <= set(table)
    assert set(PARSERS) == set(Settings.__struct_fields__)


def test_the_events_of_webhooks_are_events():
    assert set(EVENTS) <= set(KINDS)
    page = (DOCS / "operate/webhooks.md").read_text()
    assert all(f"`{name}`" in page for name in EVENTS)
