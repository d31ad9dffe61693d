"""S3 for tests: ministack (an emulator, quick) and SeaweedFS (a real store), each in a folder of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

from support.ports import answers, free_ports
from support.shared import until_the_end

START_LIMIT = 60.0
KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "testtest", "AWS_REGION": "us-east-1"}


class S3Server:
    """One server process with one bucket, `jobs`."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-s3-"))
        self.process: subprocess.Popen[bytes] | None = None
        self.port = 0

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def url(self, path: str) -> str:
        return f"s3://jobs/{path}?endpoint={self.endpoint}"

    def run(self, command: list[str], environment: dict[str, str]) -> None:
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.folder, env=os.environ | environment
            )
        deadline = time.monotonic() + START_LIMIT
        while not answers(self.endpoint):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{command[0]} does not start:\n{(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.02)
        self.make_bucket()

    def make_bucket(self) -> None:
        from botocore.session import get_session

        client = get_session().create_client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id=KEYS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"],
        )
        client.create_bucket(Bucket="jobs")
        client.put_object(Bucket="jobs", Key="warm", Body=b"")
        client.close()

    def remove(self) -> None:
        if self.process is not None and self.process.poll() is None:
            # It has nothing to save, and may take longer to stop than the run that used it.
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class Ministack(S3Server):
    def start(self) -> Ministack:
        [self.port] = free_ports(1)
        environment = {
            "SERVICES": "s3",
            "BIND_HOST": "127.0.0.1",
            "IOT_MTLS_ENABLED": "0",
            "GATEWAY_PORT": str(self.port),
            "TMPDIR": str(self.folder),
        }
        self.run([sys.executable, "-m", "ministack"], environment)
        return self


class SeaweedFS(S3Server):
    def start(self) -> SeaweedFS:
        ports = free_ports(8)
        self.port = ports[3]
        identity = {"name": "test", "actions": ["Admin", "Read", "List", "Tagging", "Write"]}
        identity["credentials"] = [{"accessKey": KEYS["AWS_ACCESS_KEY_ID"], "secretKey": KEYS["AWS_SECRET_ACCESS_KEY"]}]
        (self.folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
        names = ("master.port", "volume.port", "filer.port", "s3.port")
        grpc = ("master.port.grpc", "volume.port.grpc", "filer.port.grpc", "s3.port.grpc")
        options = [f"-{name}={port}" for name, port in zip((*names, *grpc), ports, strict=True)]
        weed = Path(sys.executable).parent / "weed"
        self.run(
            [
                str(weed), "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={self.folder}", "-s3", "-filer",
                "-master.telemetry=false", "-s3.port.iceberg=0", "-s3.port.lance=0", "-volume.max=20",
                "-master.volumeSizeLimitMB=64", f"-s3.config={self.folder / 's3.json'}", *options,
            ],
            {"TMPDIR": str(self.folder), "HOME": str(self.folder)},
        )  # fmt: skip
        return self


@cache
def shared(kind: type[S3Server]) -> S3Server:
    """One server for the whole run."""
    return until_the_end(kind().start())
