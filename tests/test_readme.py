"""README.md: figures of the cited runs, a source for each cell of the comparison, links that work on an index."""

import re
from pathlib import Path

import pytest
from bench import report, summary
from tools import picture
from tools.readme import absolute

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
MEASURED = ("idle latency, median", "jobs/s, one process")
"""Rows of the comparison with figures of our own."""
NOWHERE = "not measured"


def section(title: str) -> str:
    return README.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def comparison() -> list[list[str]]:
    lines = [line for line in section("Comparison").splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in lines]


def test_the_figures_are_those_of_the_cited_runs():
    shown = README.partition(summary.BEGIN)[2].partition(summary.END)[0].strip()
    assert shown == summary.text(report.RESULTS), "run `python -m bench report` with a cited run"
    assert f"{summary.text(report.RESULTS)}\n" in README


def test_the_commands_are_near_the_top():
    assert README.index("`make demo`") < README.index("`make test`") < 1500


def test_the_comparison_has_ten_rows_and_each_cell_has_a_source():
    head, _, *rows = comparison()
    assert head[1:] == [
        "Holdfast", "Celery", "RQ", "Dramatiq", "Huey", "Procrastinate", "taskiq", "Oban (Python)", "Temporal",
    ]  # fmt: skip
    assert len(rows) == 10
    for name, *cells in rows:
        assert len(cells) == len(head) - 1, name
        assert [cell for cell in cells if cell != NOWHERE and not re.fullmatch(r"\[.+\]\(\S+\)", cell)] == [], name


@pytest.mark.parametrize("name", MEASURED)
def test_a_figure_of_the_comparison_is_in_a_run(name):
    (row,) = (row for row in comparison() if row[0] == name)
    ours, *theirs = (re.match(r"\[([\d.,]+)( ms)?\]", cell) for cell in row[1:])
    assert ours is not None
    assert f"| {ours[1]}" in summary.text(report.RESULTS)
    measured = (ROOT / "bench" / "README.md").read_text(encoding="utf-8").partition("## Other queues\n")[2]
    for figure in filter(None, theirs):
        assert re.search(rf"\| {re.escape(figure[1])}( and [\d.]+)?{figure[2] or ''}[ |]", measured), figure[0]


def test_links_of_a_distribution_are_absolute_and_lead_to_files():
    text = absolute(README, "1.2.3")
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    assert [target for target in targets if not target.startswith("https://")] == []
    own = re.compile(r"https://(?:raw\.githubusercontent\.com/(\S+?)|github\.com/(\S+?)/blob)/v1\.2\.3/([^#]+)(?:#.+)?")
    found = [match for target in targets if (match := own.fullmatch(target))]
    assert {match[1] or match[2] for match in found} == {"holdfast-queue/holdfast"}
    assert [match[3] for match in found if not (ROOT / match[3]).exists()] == []
    assert "(https://raw.githubusercontent.com/holdfast-queue/holdfast/v1.2.3/docs/images/demo.svg)" in text
    assert "(https://github.com/holdfast-queue/holdfast/blob/v1.2.3/README.md#figures)" in text


def test_the_picture_is_small_and_needs_nothing_else():
    text = picture.PICTURE.read_text(encoding="utf-8")
    assert len(text.encode()) < 200_000
    assert re.findall(r"(?:href|src|url)\(?=?[\"']?(?!#)http", text) == []
    assert "<script" not in text
    assert "prefers-color-scheme: dark" in text
    assert "kill -9" in text
    assert "no job was lost, none finished twice" in text
    assert picture.platform.node() not in text


def test_the_picture_shows_each_line_from_its_time_on():
    said = [picture.Said(0.0, "a < b", ""), picture.Said(5.0, "b", "bold red")]
    drawn = picture.draw(
        said, [picture.Counted(0.0, (1, 0, 0, 0, 0, 0, 0)), picture.Counted(5.0, (0, 0, 0, 0, 1, 0, 0))]
    )
    assert "a &lt; b" in drawn
    assert (
        ".l1 { animation: l1 10.0s step-end infinite } @keyframes l1 { 0.00% { opacity: 0 } 50.00% { opacity: 1 } }"
        in drawn
    )
    assert 'class="bold red l1"' in drawn
    assert 'class="c0 gone"' in drawn
    assert 'class="c1"' in drawn
