"""Workflows, forms, changelog and metadata: they name what exists, and agree with each other."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from trove_classifiers import classifiers

from holdfast import __version__
from support import deploy_tools

ROOT = Path(__file__).parent.parent
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TOOLS = pytest.mark.skipif(not deploy_tools.installed(), reason=deploy_tools.MISSING)


def workflow(path):
    return yaml.load(path.read_text(), Loader=yaml.BaseLoader)  # `on` stays a text


def jobs():
    return [(path.name, name, job) for path in WORKFLOWS for name, job in workflow(path)["jobs"].items()]


def targets():
    """What `make` can make."""
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_every_action_is_pinned_to_a_commit_and_says_its_version():
    uses = [line for path in WORKFLOWS for line in path.read_text().splitlines() if "uses: " in line]
    assert uses
    for line in uses:
        assert re.search(r"uses: [\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line


def test_every_job_has_a_time_limit_and_no_rights_by_default():
    for path in WORKFLOWS:
        assert workflow(path)["permissions"] == {"contents": "read"}, path.name
    for file, name, job in jobs():
        assert 0 < int(job["timeout-minutes"]) <= 180, (file, name)


CALLERS = [*WORKFLOWS, ROOT / ".pre-commit-config.yaml", ROOT / ".ci" / "run"]


@pytest.mark.parametrize("file", CALLERS, ids=lambda file: file.name)
def test_every_make_target_that_is_called_exists(file):
    text = re.sub(r"^ *#.*", "", file.read_text(), flags=re.MULTILINE)
    called = {word for words in re.findall(r"\bmake ((?:[a-z-]+ ?)+)", text) for word in words.split()}
    assert called <= targets()


def test_ci_runs_every_python_that_the_package_names_and_macos():
    (ci,) = [path for path in WORKFLOWS if path.name == "ci.yml"]
    jobs = workflow(ci)["jobs"]
    matrix = jobs["tests"]["strategy"]["matrix"]
    (setup,) = [step["with"] for step in jobs["check"]["steps"] if "python-version" in step.get("with", ())]
    named = {one.rpartition(" ")[2] for one in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", one)}
    assert named <= {*matrix["python"], setup["python-version"]}
    assert "macos-latest" in [one["os"] for one in matrix["include"]]


def test_classifiers_and_urls_are_valid():
    assert set(PROJECT["classifiers"]) <= classifiers
    assert len(set(PROJECT["classifiers"])) == len(PROJECT["classifiers"])
    home = PROJECT["urls"]["Homepage"]
    owner, name = home.removeprefix("https://github.com/").split("/")
    assert PROJECT["urls"]["Documentation"] == f"https://{owner}.github.io/{name}/"
    assert all(url.startswith(home) for what, url in PROJECT["urls"].items() if what != "Documentation")
    for file in ("CHANGELOG.md", "SECURITY.md", "CODE_OF_CONDUCT.md", ".github/ISSUE_TEMPLATE/config.yml"):
        for url in re.findall(r"https://github\.com/[\w-]+/[\w-]+", (ROOT / file).read_text()):
            assert url == home, file


def test_the_site_knows_the_address_at_which_it_is_published():
    site = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["site_url"]
    assert site == PROJECT["urls"]["Documentation"]
    assert f"]({site})" in (ROOT / "README.md").read_text()


def test_the_version_is_the_same_everywhere_and_has_a_dated_section():
    assert PROJECT["version"] == __version__
    text = (ROOT / "CHANGELOG.md").read_text()
    unreleased, newest, *_ = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert unreleased == "[Unreleased]"
    assert re.fullmatch(rf"\[{re.escape(__version__)}\] - \d{{4}}-\d\d-\d\d", newest)
    for name in ("Unreleased", __version__):
        assert re.search(rf"^\[{re.escape(name)}\]: https://", text, re.MULTILINE)
    assert f"| {__version__.rpartition('.')[0]} | yes |" in (ROOT / "SECURITY.md").read_text()


def test_the_notes_of_a_release_are_its_section_of_the_changelog():
    recipe = subprocess.run(["make", "--dry-run", "notes"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (command,) = [line.partition(" > ")[0] for line in recipe.splitlines() if line.startswith("awk ")]
    notes = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    section = (ROOT / "CHANGELOG.md").read_text().split(f"## [{__version__}]")[1]
    assert notes.strip()
    assert notes.strip() in section
    assert "\n## [" not in notes


SCHEMAS = {
    "github-workflows": WORKFLOWS,
    "dependabot": [GITHUB / "dependabot.yml"],
    "github-issue-forms": [GITHUB / "ISSUE_TEMPLATE" / "bug.yml", GITHUB / "ISSUE_TEMPLATE" / "feature.yml"],
    "github-issue-config": [GITHUB / "ISSUE_TEMPLATE" / "config.yml"],
}


@pytest.mark.extended
@TOOLS
@pytest.mark.parametrize("schema", SCHEMAS)
def test_github_knows_every_field(schema):
    deploy_tools.run("check-jsonschema", "--builtin-schema", f"vendor.{schema}", *SCHEMAS[schema])


@pytest.mark.extended
@TOOLS
def test_the_workflows_have_no_known_hole():
    deploy_tools.run("zizmor", "--offline", "--quiet", GITHUB)


@pytest.fixture
def bill(tmp_path):
    """The bill of materials, as `make sbom` writes it."""
    subprocess.run([sys.executable, ROOT / "requirements" / "sbom.py", tmp_path], check=True, capture_output=True)
    (file,) = tmp_path.glob("*.cdx.json")
    return file


def test_the_bill_of_materials_has_what_holdfast_needs_and_no_tool(bill):
    found = json.loads(bill.read_text())
    scopes = {one["name"]: one["scope"] for one in found["components"]}
    assert {"msgspec", "typer", "cronsim", "tzdata", "rich"} <= {name for name in scopes if scopes[name] == "required"}
    assert {"asyncpg", "starlette", "obstore", "flask"} <= {name for name in scopes if scopes[name] == "optional"}
    assert not {"pytest", "ruff", "hatchling", "uv"} & set(scopes)
    refs = [one["bom-ref"] for one in found["components"]]
    assert len(set(refs)) == len(refs)
    assert {one["ref"] for one in found["dependencies"]} == {*refs, f"pkg:pypi/holdfast@{__version__}"}


@pytest.mark.extended
@TOOLS
def test_the_bill_of_materials_is_valid(bill):
    code = (
        "import sys; from cyclonedx.schema import SchemaVersion\n"
        "from cyclonedx.validation.json import JsonStrictValidator\n"
        "sys.exit(str(JsonStrictValidator(SchemaVersion.V1_6).validate_str(open(sys.argv[1]).read()) or '') or 0)"
    )
    deploy_tools.run("python", "-c", code, bill)
