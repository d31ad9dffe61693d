"""The alert rules, in promtool: each fires for its reason, after its time, and not before."""

import json
import re

import pytest

from support.deployed import DEPLOY, documents
from support.prometheus import binary, promtool

pytestmark = [
    pytest.mark.extended,
    pytest.mark.skipif(binary("promtool") is None, reason="no Prometheus: python tests/support/fetch.py fetches it"),
]
ALERTS = DEPLOY / "prometheus" / "alerts.yml"
HEALTHY = {
    'holdfast_store_up{job="holdfast-workers", instance="a"}': "1x90",
    'holdfast_store_warnings{job="holdfast-workers", instance="a"}': "0x90",
    'holdfast_worker_active_jobs{job="holdfast-workers", instance="a"}': "3x90",
    'holdfast_queue_oldest_age_seconds{queue="mail", instance="a"}': "5x90",
    'holdfast_queue_paused{queue="mail", instance="a"}': "0x90",
    'holdfast_jobs_dead_total{job_type="send", instance="a"}': "4x90",
    'holdfast_jobs_failed_total{job_type="send", instance="a"}': "0+1x90",
    'holdfast_jobs_succeeded_total{job_type="send", instance="a"}': "0+9x90",
    'holdfast_lease_rejected_total{instance="a"}': "0x90",
    'holdfast_http_requests_total{status_code="201", instance="a"}': "0+99x90",
    'holdfast_http_requests_total{status_code="503", instance="a"}': "0+1x90",
}
"""A sample for each minute, as promtool writes them."""
CASES = {
    "a store that does not answer": (
        "HoldfastStoreDown",
        {"holdfast_store_up": "0x90"},
        {"job": "holdfast-workers"},
        1,
    ),
    "a store that may lose jobs": (
        "HoldfastStoreUnsafe",
        {"holdfast_store_warnings": "1x90"},
        {"job": "holdfast-workers"},
        1,
    ),
    "no worker": ("HoldfastNoWorkers", {"holdfast_worker_active_jobs": "_x90"}, {"job": "holdfast-workers"}, 5),
    "a backlog": ("HoldfastQueueStuck", {"holdfast_queue_oldest_age_seconds": "0+60x90"}, {"queue": "mail"}, 11),
    "a paused queue": ("HoldfastQueuePaused", {"holdfast_queue_paused": "1x90"}, {"queue": "mail"}, 60),
    "one more dead job": ("HoldfastDeadLetters", {"holdfast_jobs_dead_total": "4x40 5x40"}, {"job_type": "send"}, 41),
    "the first dead job": ("HoldfastDeadLetters", {"holdfast_jobs_dead_total": "_x40 1x40"}, {"job_type": "send"}, 40),
    "more failures than successes": (
        "HoldfastFailing",
        {"holdfast_jobs_failed_total": "0+10x90"},
        {"job_type": "send"},
        11,
    ),
    "failures and no success": (
        "HoldfastFailing",
        {"holdfast_jobs_succeeded_total": "_x90"},
        {"job_type": "send"},
        11,
    ),
    "lost leases": ("HoldfastLeasesLost", {"holdfast_lease_rejected_total": "0x40 0+2x40"}, {}, 44),
    "failed requests": (
        "HoldfastServerErrors",
        {'holdfast_http_requests_total{status_code="503"': "0+10x90"},
        {},
        6,
    ),
}
"""What is wrong: the alert, the samples that differ, its labels, and the minute at which it fires first."""


def rules():
    (document,) = documents(ALERTS)
    return {rule["alert"]: rule for group in document["groups"] for rule in group["rules"]}


def expected(alert, labels):
    """An alert as promtool compares it: with all its labels, and its texts filled in."""
    fill = {name: re.sub(r"{{ \$labels\.(\w+) }}", lambda found: labels[found[1]], text)
            for name, text in rules()[alert]["annotations"].items()}  # fmt: skip
    return {"exp_labels": labels | rules()[alert]["labels"], "exp_annotations": fill}


def judged(tmp_path, series, looks):
    """Run promtool: `looks` are (minute, alert, what fires)."""
    samples = [{"series": name, "values": values} for name, values in series.items()]
    seen = [{"eval_time": f"{minute}m", "alertname": alert, "exp_alerts": fires} for minute, alert, fires in looks]
    file = tmp_path / "test.yml"
    tests = [{"interval": "1m", "input_series": samples, "alert_rule_test": seen}]
    file.write_text(json.dumps({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": tests}))
    promtool("test", "rules", file)


def test_every_rule_is_valid_and_has_a_case():
    assert f"{len(rules())} rules found" in promtool("check", "rules", ALERTS)
    assert {alert for alert, *_ in CASES.values()} == set(rules())


def test_no_alert_fires_where_all_is_well(tmp_path):
    # In its first quarter of an hour, a new Prometheus reports jobs that died before it started.
    judged(tmp_path, HEALTHY, [(minute, alert, []) for minute in (20, 80) for alert in rules()])


@pytest.mark.parametrize("case", CASES)
def test_an_alert_fires_when_it_should_and_not_before(case, tmp_path):
    alert, wrong, labels, minute = CASES[case]
    series = dict(HEALTHY)
    for start, values in wrong.items():
        (name,) = [name for name in HEALTHY if name.startswith(start)]
        series[name] = values
    fires = [expected(alert, labels)]
    judged(tmp_path, series, [(minute - 1, alert, []), (minute, alert, fires)])


def test_a_paused_queue_is_not_stuck(tmp_path):
    series = HEALTHY | {name: "1x90" for name in HEALTHY if name.startswith("holdfast_queue_paused")}
    series |= {name: "0+60x90" for name in HEALTHY if name.startswith("holdfast_queue_oldest")}
    judged(tmp_path, series, [(50, "HoldfastQueueStuck", [])])
