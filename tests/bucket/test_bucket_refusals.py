"""Credentials that may not write: nothing is written, and waiting would not help."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from holdfast import StoreRefused
from holdfast.store.bucket.cloud import Cloud
from support.s3 import KEYS


class Denying(BaseHTTPRequestHandler):
    """A bucket that denies every request."""

    status = 403

    def _deny(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(self.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_PUT = _deny  # noqa: N815  # the names that the server calls

    def log_message(self, *_):
        pass


@pytest.fixture(params=[401, 403])
def denying(request, monkeypatch):
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Denying,), {"status": request.param}))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield Cloud("s3", "jobs", "", {"endpoint": f"http://127.0.0.1:{server.server_port}"})
    server.shutdown()
    thread.join()
    server.server_close()


async def test_a_denied_request_is_a_refusal(denying):
    for request in (denying.put_if_absent("a", b""), denying.get("a")):
        with pytest.raises(StoreRefused, match="rejects the credentials of this process"):
            await request
