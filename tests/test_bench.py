"""The benchmark's own code: a tiny run of each row that all stores have, and the guard on runs written by hand."""

import json
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from bench import __main__ as command_line
from bench import bucket, guard, http, idle, report, rows, scenario
from bench.contender import Contender
from bench.measure import Figure, Figures
from bench.process import Child
from bench.scale import QUICK
from bench.targets import judge_sqlite

# -- rows


@pytest.fixture
def holdfast():
    return Contender(
        sys.executable, "bench.holdfast_side", lambda folder: {"HOLDFAST_URL": f"sqlite:///{folder}/jobs.db"}
    )


@pytest.fixture
def raw():
    return Contender(sys.executable, "bench.raw", lambda folder: {"BENCH_FILE": f"{folder}/jobs.db"})


def measured(row, folder) -> dict[tuple[str, str], float]:
    figures, troubles = scenario.run([row], 1, folder)
    assert troubles == []
    return {(figure.scenario, figure.who): figure.median for figure in figures.all}


@pytest.mark.extended
def test_a_worker_at_its_defaults_runs_plain_functions(holdfast, tmp_path):
    measures = rows.at_defaults(holdfast, count=20)
    assert measures.keys() == {rows.DEFAULT_PLAIN, rows.DEFAULT_ASYNC}
    row = scenario.Scenario("run", "jobs/s", {rows.DEFAULT_PLAIN: measures[rows.DEFAULT_PLAIN]})
    assert measured(row, tmp_path)["run", rows.DEFAULT_PLAIN] > 0


def test_what_a_measured_process_started_ends_with_it():
    started = "subprocess.Popen(['sleep', '600'], start_new_session=True)"
    script = f"import subprocess; print({started}.pid, flush=True); input()"
    with Child([sys.executable, "-c", script], {}) as process:
        pid = process.receive()
    deadline = time.monotonic() + 60
    while _runs(pid):
        assert time.monotonic() < deadline, f"process {pid} is still there"
        time.sleep(0.01)


def _runs(pid: int) -> bool:
    """Whether a process is there that has not been killed; a zombie has been."""
    said = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return bool(said.strip()) and not said.strip().startswith("Z")


@pytest.mark.extended
def test_a_worker_of_the_benchmark_runs_what_was_filled_in(holdfast, tmp_path):
    holdfast.fill(tmp_path, count=20)
    assert holdfast.run_rate(tmp_path, 1, 20, do="work", concurrency=10) > 0


@pytest.mark.extended
def test_large_payloads_give_time_and_memory_of_client_and_server(holdfast, raw, tmp_path):
    with idle_process() as server:
        row = rows.payloads({rows.HOLDFAST: holdfast, rows.RAW: raw}, 3, server.pid, size=10_000)
        found = measured(row, tmp_path)
    assert found[rows.PAYLOADS, rows.HOLDFAST] > 0
    assert found[rows.PAYLOADS, rows.RAW] > 0
    assert {scenario for scenario, _ in found} == {rows.PAYLOADS, rows.CLIENT_MEMORY, rows.SERVER_MEMORY}


def idle_process():
    return Child([sys.executable, "-c", "input()"], {})


@pytest.mark.extended
def test_an_idle_worker_shows_its_memory_wake_ups_and_traffic(holdfast, tmp_path, monkeypatch):
    monkeypatch.setattr(idle, "IDLE_AFTER", 0.0)
    found = measured(rows.idle_worker(holdfast, 1.0, {}, lambda _: counted), tmp_path)
    assert found["idle worker, questions", rows.HOLDFAST] == 7
    assert found[idle.MEMORY, rows.HOLDFAST] > 10
    assert found[idle.CPU, rows.HOLDFAST] > 0
    if sys.platform == "linux":
        assert found[idle.WAKE_UPS, rows.HOLDFAST] > 0


def counted(seconds: float) -> dict[str, float]:
    idle.no_server(seconds)
    return {"idle worker, questions, questions/s": 7.0}


@pytest.mark.extended
def test_a_cancellation_is_timed_from_one_process_to_another(holdfast, tmp_path):
    found = measured(rows.cancellation(holdfast, 1), tmp_path)
    assert 0 < found[rows.CANCEL_P50, rows.HOLDFAST] <= found[rows.CANCEL_P99, rows.HOLDFAST]


@pytest.mark.extended
@pytest.mark.parametrize("run", [http.Http, bucket.Bucket])
def test_cancel_latency_stands_beside_idle_latency_on_a_remote_store_and_on_a_bucket(run, tmp_path):
    scale = replace(QUICK, latency=1)
    found = {}
    for row in run().scenarios(scale):
        if row.name in ("idle latency", "cancel latency"):
            found |= measured(row, tmp_path)
    names = (bucket.P50, bucket.P99, rows.CANCEL_P50, rows.CANCEL_P99)
    assert found.keys() == {(name, rows.HOLDFAST) for name in names}
    assert min(found.values()) > 0


@pytest.mark.extended
def test_flows_give_rates_and_store_calls(holdfast, raw, tmp_path):
    found = measured(rows.flows(holdfast, 2, raw), tmp_path)
    assert found[rows.FLOW_ENQUEUE, rows.HOLDFAST] > 0
    assert found[rows.FLOW_RUN, rows.RAW] > 0
    assert found[rows.FLOW_ENQUEUE_CALLS, rows.HOLDFAST] >= 1
    assert found[rows.FLOW_RUN_CALLS, rows.HOLDFAST] >= 3


@pytest.mark.extended
def test_a_command_is_measured_beside_a_bare_interpreter(holdfast, tmp_path):
    found = measured(rows.command(holdfast, 1), tmp_path)
    assert min(found[rows.COMMAND, who] for who in (rows.BARE, rows.HOLDFAST)) > 0


@pytest.mark.extended
def test_blocking_enqueue_stands_beside_the_raw_loop(holdfast, raw, tmp_path):
    row = scenario.Scenario(
        "enqueue",
        "jobs/s",
        {
            rows.SYNC: lambda folder: holdfast.rate(folder, do="enqueue", how="sync", count=5),
            rows.RAW: lambda folder: raw.rate(folder, do="enqueue", count=5, per_transaction=1),
        },
    )
    assert min(measured(row, tmp_path).values()) > 0


def test_what_was_not_measured_is_not_in_the_tables():
    figures = Figures(
        [Figure(rows.COMMAND, rows.HOLDFAST, "ms", [200.0]), Figure(rows.COMMAND, rows.BARE, "ms", [20.0])]
    )
    verdicts = {verdict.what: verdict for verdict in judge_sqlite(figures, (1, 2))}
    assert verdicts[rows.COMMAND].values == [180.0]
    assert verdicts[rows.COMMAND].met is False
    assert verdicts[rows.PAYLOADS].met is None
    assert len(figures.all) == 2


# -- the guard

CITED = [
    Figure("enqueue", "Holdfast", "jobs/s", [500.0, 520.0, 480.0]),
    Figure("enqueue", "Holdfast, app.sync", "jobs/s", [400.0, 400.0, 400.0]),
    Figure("enqueue", "raw loop", "jobs/s", [1000.0, 1040.0, 960.0]),
    Figure("enqueue", "raw loop, blocking driver", "jobs/s", [800.0, 800.0, 800.0]),
    Figure("latency", "Holdfast", "ms", [2.0, 2.0, 2.0]),
    Figure("latency", "slow peer", "ms", [100.0, 100.0, 100.0]),
    Figure("latency", "fast peer", "ms", [4.0, 4.0, 4.0]),
    Figure("calls", "Holdfast", "calls", [4.0, 4.0, 4.0]),
    Figure("import", "Holdfast", "ms", [20.0, 20.0, 20.0]),
]


def times(factor: float, *changed: tuple[str, str]) -> list[Figure]:
    """The cited run, on a machine that is half as fast, where these figures changed by a factor."""
    found = []
    for figure in CITED:
        slower = 1.0 if figure.unit == "calls" else 0.5 if figure.unit == "jobs/s" else 2.0
        by = slower * (factor if (figure.scenario, figure.who) in changed else 1.0)
        found.append(Figure(figure.scenario, figure.who, figure.unit, [value * by for value in figure.known]))
    return found


@pytest.fixture
def check(tmp_path, monkeypatch, capsys):
    """Compare figures with CITED as the command does: its exit code, and what it printed."""
    monkeypatch.setattr(report, "RESULTS", tmp_path)

    def run(figures: list[Figure], **changes) -> tuple[int, str]:
        about = {"store": "sqlite", "quick": False, "only": None, "date": "2026-01-01 00:00", "scale": {"repeats": 3}}
        for name, these in (("cited-sqlite.json", CITED), ("new.json", figures)):
            all_figures = [vars(figure) for figure in these]
            (tmp_path / name).write_text(json.dumps({**about, **changes, "figures": all_figures}))
        monkeypatch.setattr(sys, "argv", ["bench", "guard", str(tmp_path / "new.json")])
        try:
            command_line.main()
        except SystemExit as end:
            return int(end.code or 0), capsys.readouterr().out
        return 0, capsys.readouterr().out

    return run


def test_a_slower_machine_is_not_a_loss(check):
    code, said = check(times(1.0))
    assert code == 0
    assert "WORSE" not in said
    assert "Nothing got worse by more than 10%." in said
    assert "import · Holdfast: no raw loop and no peer in both runs" in said


@pytest.mark.parametrize(
    ("factor", "figure", "line"),
    [
        (0.85, ("enqueue", "Holdfast"), "enqueue · Holdfast: ratio to raw loop was 0.50 (0.50 to 0.50), is 0.42"),
        (0.85, ("enqueue", "Holdfast, app.sync"), "app.sync: ratio to raw loop, blocking driver was 0.50"),
        (1.2, ("latency", "Holdfast"), "latency · Holdfast: ratio to fast peer was 0.50"),
        (1.25, ("calls", "Holdfast"), "calls · Holdfast: calls was 4.00 (4.00 to 4.00), is 5.00"),
    ],
)
def test_a_loss_of_more_than_ten_per_cent_is_named_and_fails(check, factor, figure, line):
    code, said = check(times(factor, figure))
    assert code == 1
    worse = [one for one in said.splitlines() if "WORSE" in one]
    assert len(worse) == 1
    assert line in worse[0]
    assert "1 figure got worse by more than 10%." in said


@pytest.mark.parametrize(("factor", "figure"), [(0.92, ("enqueue", "Holdfast")), (1.08, ("latency", "Holdfast"))])
def test_a_loss_of_less_than_ten_per_cent_passes(check, factor, figure):
    assert check(times(factor, figure))[0] == 0


def test_a_gain_passes(check):
    assert check(times(2.0, ("enqueue", "Holdfast")))[0] == 0
    assert check(times(0.5, ("latency", "Holdfast"), ("calls", "Holdfast")))[0] == 0


def test_rows_of_one_run_only_are_listed(check):
    new = [*times(1.0)[1:], Figure("flows", "Holdfast", "flows/s", [10.0])]
    code, said = check(new)
    assert code == 0
    assert "flows · Holdfast: the cited run does not have it" in said
    assert "enqueue · Holdfast: only the cited run has it" in said
    assert "only the cited run has it" not in check(new, only="enqueue")[1]


def test_without_a_cited_run_the_guard_says_so_before_it_measures(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["bench", "sqlite", "--guard"])
    with pytest.raises(SystemExit) as end:
        command_line.main()
    assert end.value.code == command_line.NOTHING_CITED
    assert "no sqlite run has been cited" in capsys.readouterr().err


def test_limits_are_compared_with_the_store_without_limits():
    figures = Figures([Figure("claim", "full keys", "jobs/s", [5.0]), Figure("claim", "no limits", "jobs/s", [10.0])])
    outcome = guard.compare({"store": "limits", "only": None}, figures, figures)
    assert [one.to for one in outcome.compared] == ["no limits"]
