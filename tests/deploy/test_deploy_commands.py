"""The command lines of deploy/, run here: a job goes in by HTTP and is run by the worker."""

import json
import signal

import pytest

from support.deployed import Deployed, ask
from support.eventually import eventually

pytestmark = pytest.mark.extended
PAIRS = {
    "compose": ("compose sqlite-server", "compose sqlite-worker"),
    "kubernetes": ("kubernetes server.yaml", "kubernetes worker.yaml"),
    "systemd": ("systemd holdfast-server.service", "systemd holdfast-worker.service"),
}


@pytest.mark.parametrize(("server", "worker"), PAIRS.values(), ids=PAIRS)
async def test_a_job_goes_in_by_the_server_and_is_run_by_the_worker(server, worker, tmp_path):
    with Deployed(tmp_path, f"sqlite:///{tmp_path}/jobs.db") as deployed:
        deployed.start(server)
        supervisor = deployed.start(worker)
        await eventually(lambda: ask(f"{deployed.url}/ready")[0] == 200)
        await eventually(lambda: ask(deployed.metrics_url)[0] == 200)
        status, body = deployed.submit("email.send", {"to": "a@example.com"})
        assert status == 201
        job = f"{deployed.url}/v1/jobs/{json.loads(body)['id']}"
        await eventually(lambda: json.loads(ask(job)[1])["status"] == "succeeded")
        succeeded = b'holdfast_jobs_succeeded_total{job_type="email.send"} 1.0'
        await eventually(lambda: succeeded in ask(deployed.metrics_url)[1])
        assert b'holdfast_jobs_submitted_total{job_type="email.send"} 1.0' in ask(f"{deployed.url}/metrics")[1]
        supervisor.send_signal(signal.SIGTERM)
        assert supervisor.wait(90) == 0
