"""The dashboard's files as they are served: read and compressed once, with an ETag of their content."""

from __future__ import annotations

import gzip
import hashlib
from functools import cache
from pathlib import Path

import msgspec

FOLDER = Path(__file__).with_name("static")
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


class File(msgspec.Struct, frozen=True):
    """One file, plain and gzip-compressed."""

    type: str
    body: bytes
    packed: bytes
    etag: str


@cache
def files() -> dict[str, File]:
    """All files, by name."""
    return {path.name: _read(path) for path in sorted(FOLDER.iterdir()) if path.suffix in TYPES}


def _read(path: Path) -> File:
    body = path.read_bytes()
    etag = f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
    return File(TYPES[path.suffix], body, gzip.compress(body, 9, mtime=0), etag)
