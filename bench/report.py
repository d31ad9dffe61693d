"""What a run says: two tables, in the terminal, in JSON, and in README.md."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

from . import charts, comparison, summary
from .measure import Figure, Figures, number
from .targets import Verdict, judge_sqlite

HERE = Path(__file__).resolve().parent
README = HERE / "README.md"
RESULTS = HERE / "results"
BEGIN, END = "<!-- figures: {store} -->", "<!-- end of figures: {store} -->"


def save(run: dict[str, Any], figures: Figures) -> Path:
    """Write a run's JSON; its name tells when, which store, and whether it was a quick one."""
    RESULTS.mkdir(exist_ok=True)
    when = run["date"].replace(":", "").replace(" ", "T")
    path = RESULTS / f"{when}-{run['store']}{'-quick' if run['quick'] else ''}.json"
    verdicts = [{**asdict(verdict), "met": verdict.met} for verdict in judge(run, figures)]
    whole = {**run, "targets": verdicts, "figures": [asdict(figure) for figure in figures.all]}
    path.write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def load(path: Path) -> tuple[dict[str, Any], Figures]:
    run = json.loads(path.read_text(encoding="utf-8"))
    return run, Figures([Figure(**figure) for figure in run["figures"]])


def judge(run: dict[str, Any], figures: Figures) -> list[Verdict]:
    depths = tuple(run["scale"]["depths"])
    if run["store"] == "redis":
        from .redis_targets import judge_redis

        return judge_redis(figures, depths)
    if run["store"] == "postgres":
        from .postgres_targets import judge_postgres

        return judge_postgres(figures, depths)
    if run["store"] == "bucket":
        from .bucket import judge_bucket

        return judge_bucket(figures, depths)
    if run["store"] == "http":
        from .http import judge_http

        return judge_http(figures)
    if run["store"] == "limits":
        from .limits import judge_limits

        return judge_limits(figures)
    return judge_sqlite(figures, depths)


def text(run: dict[str, Any], figures: Figures) -> str:
    """Both tables, in Markdown."""
    return "\n".join([_about(run), "", *_verdicts(run, figures), "", *_figures(figures), "", *_durability(run)])


def cite(path: Path) -> None:
    """Put a run's tables into README.md, its figures into the repository's, and keep its JSON beside the code."""
    run, figures = load(path)
    if run["quick"] or run["only"] or run["troubles"] or run["scale"]["repeats"] < 3:
        raise SystemExit("only a whole run of at least three repeats in which nothing failed can be cited")
    store = run["store"]
    begin, end = BEGIN.format(store=store), END.format(store=store)
    before, _, rest = README.read_text(encoding="utf-8").partition(begin)
    _, _, after = rest.partition(end)
    if not rest or not after:
        raise SystemExit(f"README.md has no place for the figures of {store}: {begin} … {end}")
    README.write_text(f"{before}{begin}\n{picture(store)}{text(run, figures)}\n{end}{after}", encoding="utf-8")
    kept = RESULTS / f"cited-{store}.json"
    if path.resolve() != kept:
        shutil.copyfile(path, kept)
    summary.write(RESULTS)
    comparison.write(RESULTS)
    charts.write(RESULTS)


def picture(store: str) -> str:
    """The chart of a store, in Markdown; nothing for a run without one."""
    if store not in charts.STORES:
        return ""
    return f"![Figures of {charts.STORES[store]}](../docs/images/figures-{store}.svg)\n\n"


def _about(run: dict[str, Any]) -> str:
    machine = run["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
    return (
        f"`{run['command']}`, {run['date']} UTC{', QUICK: not to be quoted' if run['quick'] else ''}: "
        f"{run['scale']['repeats']} repeats, {machine['processor']}, {machine['cores']} cores, {machine['system']}, "
        f"{machine['file_system']} ({machine['fsyncs_per_second']:,} fsync/s), Python {machine['python']}, "
        f"SQLite {machine['sqlite']}, {versions}; load before it began: {machine['load_before'][0]}."
    )


def _verdicts(run: dict[str, Any], figures: Figures) -> list[str]:
    lines = ["| what | target | reached (lowest to highest) | |", "| --- | --- | --- | --- |"]
    for verdict in judge(run, figures):
        if verdict.median is None:
            reached = "not measured"
        else:
            low, high = min(verdict.values), max(verdict.values)
            reached = f"{number(verdict.median)} {verdict.unit}".rstrip() + f" ({number(low)} to {number(high)})"
        word = {True: "met", False: "**not met**", None: ""}[verdict.met]
        lines.append(f"| {verdict.what} | {verdict.target} | {reached} | {word} |")
    return lines


def _figures(figures: Figures) -> list[str]:
    lines = ["| what | who | median | lowest to highest | unit |", "| --- | --- | ---: | ---: | --- |"]
    scenario = ""
    for figure in figures.by_scenario():
        what = figure.scenario if figure.scenario != scenario else ""
        scenario = figure.scenario
        if figure.known:
            spread = f"{number(min(figure.known))} to {number(max(figure.known))}"
            lines.append(f"| {what} | {figure.who} | {number(figure.median)} | {spread} | {figure.unit} |")
        else:
            lines.append(f"| {what} | {figure.who} | failed | | |")
    return lines


def _durability(run: dict[str, Any]) -> list[str]:
    return [f"- {who}: {how}." for who, how in run["durability"].items()]
