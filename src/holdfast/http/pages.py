"""Routes of the dashboard's static files. They need no token: they contain no data, which comes from the API.

The content security policy allows only the dashboard's own files: no inline script or style, no other host, no
framing, and with Trusted Types no text that becomes markup.
"""

from __future__ import annotations

from ..dashboard.files import File, files
from .call import Answer, Call
from .endpoint import Endpoint
from .problems import NOT_FOUND, Refused

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)


def served(call: Call, file: File) -> Answer:
    """A file as an answer, revalidated by its ETag."""
    known = [
        tag.strip().removeprefix("W/") for tag in (call.header(b"if-none-match") or b"").decode("latin-1").split(",")
    ]
    packs = b"gzip" in (call.header(b"accept-encoding") or b"")
    fresh = file.etag in known
    body = b"" if fresh else file.packed if packs else file.body
    answer = Answer(304 if fresh else 200, body)
    answer.headers = [
        (b"etag", file.etag.encode()),
        (b"cache-control", b"no-cache"),
        (b"vary", b"accept-encoding"),
        (b"content-type", file.type.encode()),
        (b"content-security-policy", POLICY.encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"x-frame-options", b"DENY"),
        (b"referrer-policy", b"no-referrer"),
        (b"cross-origin-opener-policy", b"same-origin"),
        (b"cross-origin-resource-policy", b"same-origin"),
    ]
    if not fresh:
        answer.headers.append((b"content-length", b"%d" % len(body)))
        if packs:
            answer.headers.append((b"content-encoding", b"gzip"))
    return answer


async def page(call: Call) -> Answer:
    """The dashboard."""
    return served(call, files()["index.html"])


async def reference(call: Call) -> Answer:
    """The page of the HTTP API."""
    return served(call, files()["docs.html"])


async def part(call: Call, name: str) -> Answer:
    """A file of the dashboard."""
    file = files().get(name)
    if file is None:
        raise Refused(NOT_FOUND, f"the dashboard has no file {name!r:.100}")
    return served(call, file)


def endpoints() -> list[Endpoint]:
    """The routes of the dashboard, which are not part of the API."""
    return [
        Endpoint("GET", "/", None, page, {200: "text/html"}),
        Endpoint("GET", "/docs", None, reference, {200: "text/html"}),
        Endpoint("GET", "/dashboard/{name}", None, part, {200: "text/plain"}, (NOT_FOUND,)),
    ]
