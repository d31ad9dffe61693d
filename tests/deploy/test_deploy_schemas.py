"""Manifests, the Helm chart, compose.yaml and the Dockerfile, by the schemas and linters of their own tools."""

import json
from pathlib import Path

import pytest
import yaml

from support.deploy_tools import MISSING, installed, run
from support.deployed import DEPLOY, documents

pytestmark = [pytest.mark.extended, pytest.mark.skipif(not installed(), reason=MISSING)]
HERE = Path(__file__).parent
KUBERNETES = ("1.30", "1.34")
"""The oldest and the newest release that the manifests are checked for."""
RENDER = HERE.parent / "support" / "render_chart.py"


def rendered(**values):
    """The objects that the chart makes, by kind and name."""
    texts = json.loads(run("python", RENDER, DEPLOY / "helm", "holdfast", given=json.dumps(values)))
    found = [one for name, text in texts.items() if name.endswith(".yaml") for one in yaml.safe_load_all(text) if one]
    return {(one["kind"], one["metadata"]["name"]): one for one in found}


def manifests():
    """The objects of kubernetes/, by kind and name."""
    files = [path for path in (DEPLOY / "kubernetes").glob("*.yaml") if path.name != "kustomization.yaml"]
    return {(one["kind"], one["metadata"]["name"]): one for path in files for one in documents(path)}


def written(folder, objects):
    """Each object in a file of its own."""
    for (kind, name), one in objects.items():
        (folder / f"{kind}-{name}.yaml").write_text(yaml.safe_dump(one))
        yield folder / f"{kind}-{name}.yaml"


def is_scaler(path):
    return path.name.startswith("ScaledObject")


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("objects", [manifests, rendered], ids=["manifests", "chart"])
def test_kubernetes_knows_every_field(objects, version, tmp_path):
    files = [path for path in written(tmp_path, objects()) if not is_scaler(path)]
    assert len(files) >= 4
    run("kubernetes-validate", "--strict", "--kubernetes-version", version, *files)


def test_kubernetes_refuses_an_unknown_field(tmp_path):
    service = manifests()["Service", "holdfast-server"]
    service["spec"]["prots"] = service["spec"]["ports"]
    with pytest.raises(AssertionError, match="prots"):
        run("kubernetes-validate", "--strict", *written(tmp_path, {("Service", "wrong"): service}))


def test_keda_knows_every_field(tmp_path):
    scalers = [one | {"metadata": {"name": source}} for source, objects in
               (("manifests", manifests()), ("chart", rendered(keda={"enabled": True})))
               for (kind, _), one in objects.items() if kind == "ScaledObject"]  # fmt: skip
    files = list(written(tmp_path, {("ScaledObject", one["metadata"]["name"]): one for one in scalers}))
    assert len(files) == 2
    run("check-jsonschema", "--schemafile", HERE / "scaled_object.schema.json", *files)


def test_the_chart_makes_what_the_manifests_have():
    made, given = rendered(keda={"enabled": True}), manifests()
    del given["Secret", "holdfast"]
    assert set(made) == set(given)
    assert "replicas" not in made["Deployment", "holdfast-worker"]["spec"], "KEDA sets them"
    made |= {(kind, name): one for (kind, name), one in rendered().items() if kind == "Deployment"}
    for key, one in given.items():
        assert made[key]["spec"] == one["spec"], key
        assert made[key]["metadata"].get("labels") == one["metadata"].get("labels")


def test_values_of_the_chart_reach_what_they_are_about():
    made = rendered(
        image="shop:7",
        imagePullPolicy="Always",
        app="shop.jobs:queue",
        secret="queue",
        migrate={"enabled": False},
        server={"hosts": ["jobs.example.com"]},
        worker={"grace": 10, "flags": ["--queues", "mail:5,default:1"]},
    )
    assert "Job" not in {kind for kind, _ in made}
    (server,) = made["Deployment", "holdfast-server"]["spec"]["template"]["spec"]["containers"]
    assert server["args"][-4:] == ["--allow-host", "holdfast-server", "--allow-host", "jobs.example.com"]
    assert server["envFrom"] == [{"secretRef": {"name": "queue"}}]
    pod = made["Deployment", "holdfast-worker"]["spec"]["template"]["spec"]
    (worker,) = pod["containers"]
    assert (worker["image"], worker["imagePullPolicy"]) == ("shop:7", "Always")
    assert worker["args"][3:4] == ["shop.jobs:queue"]
    assert worker["args"][-2:] == ["--queues", "mail:5,default:1"]
    assert pod["terminationGracePeriodSeconds"] == 40
    assert {"name": "HOLDFAST_STOP_TIMEOUT", "value": "40"} in worker["env"]


def test_the_chart_accepts_its_own_values_and_refuses_a_misspelt_one(tmp_path):
    schema, values = DEPLOY / "helm" / "values.schema.json", DEPLOY / "helm" / "values.yaml"
    run("check-jsonschema", "--schemafile", schema, values)
    (wrong := tmp_path / "values.yaml").write_text(values.read_text().replace("processes:", "proceses:"))
    with pytest.raises(AssertionError, match="proceses"):
        run("check-jsonschema", "--schemafile", schema, wrong)


def test_the_chart_has_the_version_of_the_package():
    from holdfast import __version__

    (chart,) = documents(DEPLOY / "helm" / "Chart.yaml")
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


def test_compose_knows_every_field(tmp_path):
    run("check-jsonschema", "--builtin-schema", "vendor.compose-spec", DEPLOY / "compose.yaml")
    (wrong := tmp_path / "compose.yaml").write_text(
        (DEPLOY / "compose.yaml").read_text().replace("cap_drop", "cap_drp")
    )
    with pytest.raises(AssertionError, match="cap_drp"):
        run("check-jsonschema", "--builtin-schema", "vendor.compose-spec", wrong)


def test_the_dockerfile_passes_its_linter():
    run("hadolint", DEPLOY / "Dockerfile")
