"""Parses a URL into a bucket and its timings: s3://bucket/folder, gs://…, az://container/…, file:///folder."""

from __future__ import annotations

from msgspec.structs import replace

from ...core.errors import ConfigError
from ...core.url import Url
from .cloud import Cloud
from .folder import Folder
from .protocol import Bucket
from .timings import FOLDER, Timings

_CLOUD = ("endpoint", "timeout", "verify")
OPTIONS = {"s3": (*_CLOUD, "region"), "gs": _CLOUD, "az": (*_CLOUD, "account"), "file": ("verify",)}
"""The query parameters of a URL, by scheme."""


def parse(url: Url) -> tuple[Bucket, Timings]:
    """The bucket that a URL names, and its timings."""
    verify = url.options.get("verify", "")
    if verify not in ("", "always"):
        raise url.wrong("?verify= must be always; leave the parameter out for the default")
    always = {"verify_after": 0.0} if verify else {}
    if url.scheme == "file":
        if url.authority or url.username is not None or url.path in ("", "/"):
            raise ConfigError("a file:// URL needs three slashes and the path of a folder: file:///var/lib/jobs")
        return Folder(url.path), replace(FOLDER, **always)
    if url.username is not None or "@" in url.options.get("endpoint", ""):
        raise ConfigError(
            f"the {url.scheme}:// URL contains credentials: remove them, and set the environment variables of the"
            " provider (for S3: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)"
        )
    if not url.authority:
        raise ConfigError(f"the {url.scheme}:// URL names no bucket: write {url.scheme}://my-bucket/jobs")
    return Cloud(url.scheme, url.authority, url.path, url.options), replace(Timings(), **always)
