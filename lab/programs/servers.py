"""Web servers with the application of `site.py`, started, asked, and ended."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .cases import Reported, Tally

ROOT = Path(__file__).resolve().parent.parent.parent
GUNICORN = ["-m", "gunicorn", "--workers", "2", "--log-level", "error", "lab.programs.site:wsgi"]
SERVERS = {
    "gunicorn sync": [*GUNICORN, "--worker-class", "sync"],
    "gunicorn sync --preload": [*GUNICORN, "--worker-class", "sync", "--preload"],
    "gunicorn gthread": [*GUNICORN, "--worker-class", "gthread", "--threads", "8"],
    "gunicorn gthread --preload": [*GUNICORN, "--worker-class", "gthread", "--threads", "8", "--preload"],
    "gunicorn gevent": [*GUNICORN, "--worker-class", "gevent"],
    "gunicorn gevent --preload": [*GUNICORN, "--worker-class", "gevent", "--preload"],
    "uvicorn --workers 2": ["-m", "uvicorn", "--workers", "2", "--log-level", "error", "lab.programs.site:asgi"],
}
PATIENCE = 30.0


def serve(case: str, url: str, count: int) -> Reported:
    """Run a server, and enqueue through it. A request that is answered with an error is one that was reported."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    bind = ["--bind", f"127.0.0.1:{port}"] if "gunicorn" in case else ["--port", str(port)]
    environment = os.environ | {"LAB_URL": url, "PYTHONPATH": str(ROOT)}
    if "--preload" in case:
        environment["LAB_USED_AT_IMPORT"] = "1"
    server = subprocess.Popen(
        [sys.executable, *SERVERS[case], *bind], env=environment, stderr=subprocess.DEVNULL, start_new_session=True
    )
    tally = Tally()
    try:
        if not _listens(server, port):
            tally.reported = count  # it refused to start, and said why
            return tally.result()
        with ThreadPoolExecutor(16) as pool:
            for answered in pool.map(_ask, [port] * count):
                tally.acknowledged += answered
                tally.reported += not answered
                if (tally.acknowledged + tally.reported) % 50 == 1:
                    for pid in _family(server.pid):
                        tally.look(pid)
        return tally.result()
    finally:
        server.send_signal(signal.SIGTERM)
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def _listens(server: subprocess.Popen[bytes], port: int) -> bool:
    """Wait until a worker answers; False where the server ends, or no worker starts."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with socket.create_connection(("127.0.0.1", port), 1.0):
                return True
        except OSError:
            time.sleep(0.05)
    return False


def _ask(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request("GET", "/")
        answer = connection.getresponse()
        return answer.status == 200 and len(answer.read()) > 0
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _family(pid: int) -> list[int]:
    """A process and its children."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [pid, *(int(child) for child in children)]
