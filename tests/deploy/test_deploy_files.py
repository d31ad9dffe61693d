"""What deploy/ says is true of the commands, the settings and the metrics that there are."""

import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import typer.main

from holdfast.cli.commands import app as cli
from holdfast.core.settings import PARSERS
from holdfast.observe.tally import METRICS
from holdfast.worker.supervisor import KILL_AFTER
from support.deployed import DEPLOY, commands, compose, containers, documents, our_services

pytestmark = pytest.mark.extended
FILES = sorted(path for path in DEPLOY.rglob("*") if path.is_file() and path.suffix != ".pyc")
MANIFESTS = [path for path in FILES if path.suffix in (".yaml", ".yml") and path.parent.name != "templates"]
ENVIRONMENT = {f"HOLDFAST_{name.upper()}" for name in PARSERS} | {"HOLDFAST_TOKEN"}
UV = Path(sys.executable).parent / "uv"
EVERY_SAMPLE_HAS = {"job", "instance"}
"""What Prometheus itself adds."""


def test_every_manifest_can_be_read():
    assert len(MANIFESTS) >= 7
    for path in MANIFESTS:
        assert documents(path), path


@pytest.mark.parametrize("where", commands())
def test_every_command_and_flag_exists(where):
    command, words = typer.main.get_command(cli), list(commands()[where][0])
    while hasattr(command, "commands"):
        name = words.pop(0)
        assert name in command.commands, f"{where}: there is no command {name}"
        command = command.commands[name]
    flags = {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}
    used = [word for word in words if word.startswith("-")]
    assert set(used) <= flags, f"{where}: {set(used) - flags}"
    command.make_context("holdfast", words, resilient_parsing=False)


def test_every_variable_is_one_that_holdfast_reads():
    for path in FILES:
        used = set(re.findall(r"\bHOLDFAST_[A-Z_]+", path.read_text()))
        assert used <= ENVIRONMENT, f"{path}: {used - ENVIRONMENT}"


def test_a_caller_stops_a_worker_waits_longer_than_its_grace():
    def grace(words):
        return float(words[words.index("--grace") + 1]) + KILL_AFTER

    found = {where: words for where, (words, _) in commands().items()}
    for name in ("worker", "sqlite-worker"):
        assert float(compose()["services"][name]["stop_grace_period"].removesuffix("s")) > grace(
            found[f"compose {name}"]
        )
    for file, pod, _ in containers():
        if file == "worker.yaml":
            assert pod["terminationGracePeriodSeconds"] > grace(found["kubernetes worker.yaml"])
    unit = (DEPLOY / "systemd" / "holdfast-worker.service").read_text()
    (stop,) = re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)
    assert int(stop) > grace(found["systemd holdfast-worker.service"])
    assert "KillMode=mixed" in unit


def test_workers_are_reported_how_long_the_platform_waits():
    for name in ("worker", "sqlite-worker"):
        service = compose()["services"][name]
        assert service["stop_grace_period"] == f"{service['environment']['HOLDFAST_STOP_TIMEOUT']}s"
    [(pod, container)] = [(pod, container) for file, pod, container in containers() if file == "worker.yaml"]
    reported = {variable["name"]: variable.get("value") for variable in container["env"]}
    assert reported["HOLDFAST_STOP_TIMEOUT"] == str(pod["terminationGracePeriodSeconds"])
    unit = (DEPLOY / "systemd" / "holdfast-worker.service").read_text()
    assert re.findall(r"STOP_TIMEOUT=(\d+)$", unit, re.MULTILINE) == re.findall(r"StopSec=(\d+)$", unit, re.MULTILINE)


def test_the_image_copies_all_that_the_package_is_built_from(tmp_path):
    stage = (DEPLOY / "Dockerfile").read_text().split("\nFROM ")[1]
    context = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    for line in re.findall(r"^COPY (.+)$", stage, re.MULTILINE):
        *sources, target = line.split()
        for source in sources:
            assert f"!{source}" in context, f"the build does not get {source}"
            file, folder = DEPLOY.parent / source, tmp_path / target
            if file.is_dir():
                shutil.copytree(file, folder, dirs_exist_ok=True)
            else:
                folder.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, folder)
    build = [UV, "build", "--wheel", "--no-build-isolation", "--python", sys.executable, "-o", tmp_path / "dist", "."]
    done = subprocess.run(build, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        (metadata,) = [name for name in files.namelist() if name.endswith(".dist-info/METADATA")]
        provided = re.findall(r"^Provides-Extra: (\S+)$", files.read(metadata).decode(), re.MULTILINE)
    (extras,) = re.findall(r'pip install .*"\.\[(.+)\]"', stage)
    assert set(extras.split(",")) <= set(provided)


def test_no_container_runs_as_root():
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    assert len(re.findall(r"^FROM ", dockerfile, re.MULTILINE)) == 2
    assert re.findall(r"^USER (\S+)$", dockerfile, re.MULTILINE) == ["10001"]
    for file, _, container in containers():
        context = container["securityContext"]
        assert context["runAsNonRoot"], file
        assert context["runAsUser"] == 10001
        assert not context["allowPrivilegeEscalation"]


def test_only_servers_are_given_the_token():
    """Tasks see what their worker sees, and this token may do everything."""
    for file, _, container in containers():
        given = {one["name"] for one in container.get("env", ())}
        everything = "envFrom" in container
        assert everything == (file == "server.yaml"), file
        assert "HOLDFAST_TOKEN" not in given
        assert everything or "HOLDFAST_URL" in given
    for name, one in our_services().items():
        assert ("HOLDFAST_TOKEN" in one["environment"]) == name.endswith("server"), name
    files = {}
    for unit in (DEPLOY / "systemd").glob("*.service"):
        (files[unit.stem],) = re.findall(r"^EnvironmentFile=(.*)$", unit.read_text(), re.MULTILINE)
    assert files["holdfast-worker"] != files["holdfast-server"]


def test_prometheus_asks_workers_by_a_name_that_they_answer_to():
    (settings,) = documents(DEPLOY / "prometheus" / "prometheus.yml")
    (targets,) = [one["static_configs"] for one in settings["scrape_configs"] if one["job_name"] == "holdfast-workers"]
    for target in targets[0]["targets"]:
        name = target.partition(":")[0]
        assert compose()["services"][name]["hostname"] == name


def test_compose_has_both_profiles_and_what_belongs_to_each():
    services = compose()["services"]
    by_profile = {}
    for name, one in services.items():
        (profile,) = one["profiles"]
        by_profile.setdefault(profile, set()).add(name)
    assert by_profile == {
        "postgres": {"postgres", "redis", "migrate", "server", "worker"},
        "sqlite": {"sqlite-server", "sqlite-worker", "shell"},
    }
    assert (DEPLOY / ".env").read_text().strip() == "COMPOSE_PROFILES=postgres"
    assert services["server"]["depends_on"]["migrate"] == {"condition": "service_completed_successfully"}
    for name in ("server", "sqlite-server"):
        assert services[name]["ports"] == ["127.0.0.1:8000:8000"], "for this machine, until an operator publishes it"
        assert "?" in services[name]["environment"]["HOLDFAST_TOKEN"], "there is no token by default"
    assert "signal=redis://redis" in services["worker"]["environment"]["HOLDFAST_URL"]


def test_probes_ask_what_there_is():
    probes = {}
    for file, _, container in containers():
        ports = {port["name"]: port["containerPort"] for port in container.get("ports", ())}
        for kind in ("livenessProbe", "readinessProbe", "startupProbe"):
            if kind in container:
                asked = container[kind]["httpGet"]
                assert asked["port"] in ports, file
                probes[file, kind] = asked["path"]
    assert probes["server.yaml", "livenessProbe"] == "/health"
    assert probes["server.yaml", "readinessProbe"] == "/ready"
    assert ("worker.yaml", "livenessProbe") in probes


# -- metrics


def expressions():
    """Every expression of the dashboard, the alerts and the scaler."""
    dashboard = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text())
    found = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    found += [one["query"]["query"] for one in dashboard["templating"]["list"] if isinstance(one["query"], dict)]
    (alerts,) = documents(DEPLOY / "prometheus" / "alerts.yml")
    found += [rule["expr"] for group in alerts["groups"] for rule in group["rules"]]
    (scaler,) = documents(DEPLOY / "kubernetes" / "keda.yaml")
    return [*found, *(trigger["metadata"]["query"] for trigger in scaler["spec"]["triggers"])]


def samples():
    """Every sample that a page of metrics can have, with its labels."""
    found = {}
    for name, metric in METRICS.items():
        labels = set(metric.labels)
        if metric.kind == "histogram":
            found |= {f"{name}_bucket": labels | {"le"}, f"{name}_sum": labels, f"{name}_count": labels}
        else:
            found[name] = labels
    return found


@pytest.mark.parametrize("expression", expressions())
def test_every_metric_and_label_exists(expression):
    known = samples()
    used = re.findall(r"(holdfast_\w+)(?:\{([^}]*)\})?", expression)
    assert used, expression
    everywhere = set(EVERY_SAMPLE_HAS)
    for name, selector in used:
        assert name in known, name
        everywhere |= known[name]
        labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector))
        assert labels <= known[name] | EVERY_SAMPLE_HAS, f"{name} has no {labels - known[name]}"
    for group in re.findall(r"\bby \(([^)]*)\)", expression):
        assert {label.strip() for label in group.split(",")} <= everywhere, expression
    assert expression.count("(") == expression.count(")")


def test_every_metric_is_looked_at():
    text = "\n".join(expressions())
    assert [name for name in METRICS if name not in text] == []


def test_the_alerts_name_labels_that_their_expressions_keep():
    (alerts,) = documents(DEPLOY / "prometheus" / "alerts.yml")
    for group in alerts["groups"]:
        for rule in group["rules"]:
            assert {"summary", "description"} <= set(rule["annotations"])
            assert rule["labels"]["severity"] in ("page", "ticket")
            for label in re.findall(r"\$labels\.(\w+)", str(rule["annotations"])):
                assert re.search(rf"by \([^)]*\b{label}\b", rule["expr"]), rule["alert"]


def test_panels_do_not_overlap():
    dashboard = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text())
    taken = set()
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
