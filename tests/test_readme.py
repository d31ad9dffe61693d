"""README.md: figures of the cited runs, a source for each cell of the comparison, links that work on an index."""

import json
import re
from pathlib import Path

import pytest
from bench import bucket, charts, comparison, http, report, summary
from tools import picture
from tools.readme import absolute

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
NOWHERE = "not measured"


def section(title: str) -> str:
    return README.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def compared() -> list[list[str]]:
    lines = [line for line in section("Comparison").splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in lines]


def test_the_figures_are_those_of_the_cited_runs():
    shown = README.partition(summary.BEGIN)[2].partition(summary.END)[0].strip()
    assert shown == summary.text(report.RESULTS), "run `python -m bench report` with a cited run"
    assert f"{summary.text(report.RESULTS)}\n" in README


@pytest.mark.parametrize("store", ["sqlite", "postgres", "redis", "http", "bucket", "limits"])
def test_the_tables_are_those_of_the_cited_run_judged_by_the_targets_of_today(store):
    begin, end = report.BEGIN.format(store=store), report.END.format(store=store)
    shown = report.README.read_text(encoding="utf-8").partition(f"{begin}\n")[2].partition(f"\n{end}")[0]
    cited = report.RESULTS / f"cited-{store}.json"
    run = report.picture(store) + report.text(*report.load(cited)) if cited.exists() else "No run has been cited yet."
    assert shown == run, f"run `python -m bench report {cited.relative_to(ROOT)}`"


def test_the_charts_are_those_of_the_cited_runs():
    drawn = charts.pictures(report.RESULTS)
    kept = {path.name: path.read_text(encoding="utf-8") for path in charts.IMAGES.glob("figures*.svg")}
    assert kept == drawn, "run `python -m bench report` with a cited run"
    assert "](docs/images/figures.svg)" in README
    pages = (ROOT / "bench" / "README.md").read_text(encoding="utf-8")
    assert [name for name in drawn if name != "figures.svg" and f"](../docs/images/{name})" not in pages] == []


def test_the_commands_are_near_the_top():
    assert README.index("`make demo`") < README.index("`make test`") < 1500


def test_the_comparison_has_ten_rows_and_each_cell_has_a_source():
    head, _, *rows = compared()
    assert head[1:] == [
        "Holdfast", "Celery", "RQ", "Dramatiq", "Huey", "Procrastinate", "taskiq", "Oban (Python)", "Temporal",
    ]  # fmt: skip
    assert len(rows) == 10
    for name, *cells in rows:
        assert len(cells) == len(head) - 1, name
        assert [cell for cell in cells if cell != NOWHERE and not re.fullmatch(r"\[.+\]\(\S+\)", cell)] == [], name


@pytest.mark.parametrize("name", comparison.ROWS)
def test_a_figure_of_the_comparison_is_in_a_run(name):
    assert comparison.text(README, report.RESULTS) == README, "run `python -m bench report` with a cited run"
    (row,) = (row for row in compared() if row[0] == name)
    assert row[1].endswith("(#figures)")
    measured = report.README.read_text(encoding="utf-8").partition("## Other queues\n")[2]
    for cell in row[2:]:
        if figure := re.fullmatch(r"\[([\d.,]+)( ms)?\]\(bench/README.md#other-queues\)", cell):
            assert re.search(rf"\| {re.escape(figure[1])}( and [\d.]+)?{figure[2] or ''}[ |]", measured), cell
        else:
            assert cell == NOWHERE or re.search(r"\(bench/README.md#(redis|postgres)\)$", cell), cell


def test_the_cells_about_kill_9_are_those_that_were_measured():
    head, _, row, *_ = compared()
    measured = report.README.read_text(encoding="utf-8").partition("## Other queues\n")[2]
    lines = [line.strip("| ").split(" | ") for line in measured.splitlines() if line.startswith("|")]
    cited = {name: cell for name, cell in zip(head, row, strict=True) if "#other-queues" in cell}
    assert len(cited) == 7
    for name, cell in cited.items():
        ends = [line[-1] for line in lines if line[0].split()[0] == name.split()[0]]
        assert ends, name
        for end in ends:
            assert end.startswith("lost") if "lost" in cell else "none run again within 150 s" in end, (name, cell, end)


def test_a_cited_run_fills_the_columns_of_its_queues(tmp_path):
    figures = [
        {"scenario": scenario, "who": who, "unit": unit, "values": [value]}
        for scenario, unit, value in ((summary.RUN, "jobs/s", 1234.0), (summary.LATENCY, "ms", 2.5))
        for who in ("Celery", "taskiq (streams, results)")
    ]
    (tmp_path / "cited-redis.json").write_text(json.dumps({"figures": figures}))
    changed = [
        (old, new)
        for old, new in zip(README.splitlines(), comparison.text(README, tmp_path).splitlines(), strict=True)
        if old != new
    ]
    assert [old.split("|")[1] for old, _ in changed] == list(comparison.ROWS)
    for (_, new), cell in zip(
        changed, ("[2.50 ms](bench/README.md#redis)", "[1,234](bench/README.md#redis)"), strict=True
    ):
        assert [index for index, text in enumerate(new.split("|")[2:]) if text == cell] == [1, 6]


def test_cited_runs_of_a_bucket_and_of_http_have_a_rate_of_workers_and_a_latency(tmp_path):
    for store, scenarios in {"bucket": (bucket.RUN_ONE, bucket.P50), "http": (http.RUN_ONE, http.P50)}.items():
        figures = [
            {"scenario": scenario, "who": "Holdfast", "unit": unit, "values": [value]}
            for scenario, unit, value in zip(scenarios, ("jobs/s", "ms"), (1234.0, 2.5), strict=True)
        ]
        run = {"date": "2026-11-19 12:00", "figures": figures}
        (tmp_path / f"cited-{store}.json").write_text(json.dumps(run))
    _, _, *rows = summary.text(tmp_path).splitlines()
    assert rows == [
        "|[a folder](bench/README.md#bucket), 2026-11-19|1,234|||2.50 ms||",
        "|[HTTP, on SQLite](bench/README.md#http), 2026-11-19|1,234|||2.50 ms||",
    ]


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
