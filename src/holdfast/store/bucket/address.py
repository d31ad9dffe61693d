"""From a URL to a bucket and its pace: s3://bucket/folder, gs://…, az://container/…, file:///folder."""

from __future__ import annotations

from urllib.parse import SplitResult, unquote

from msgspec.structs import replace

from ...errors import ConfigError
from .cloud import Cloud
from .folder import Folder
from .pace import FOLDER, Pace
from .seam import Bucket

_CLOUD = ("endpoint", "timeout", "verify")
OPTIONS = {"s3": (*_CLOUD, "region"), "gs": _CLOUD, "az": (*_CLOUD, "account"), "file": ("verify",)}
"""What may stand behind the question mark, by scheme."""


def parse(parts: SplitResult, options: dict[str, str]) -> tuple[Bucket, Pace]:
    """The bucket that a URL names, and how often to look at it."""
    verify = options.get("verify", "")
    if verify not in ("", "always"):
        raise ConfigError(f"verify may be always, not {verify!r}")
    always = {"verify_after": 0.0} if verify else {}
    if parts.scheme == "file":
        path = unquote(parts.path)
        if parts.netloc or path in ("", "/"):
            raise ConfigError("a folder URL has three slashes and a folder: file:///var/lib/jobs")
        return Folder(path), replace(FOLDER, **always)
    if not parts.netloc:
        raise ConfigError(f"{parts.scheme}://: name a bucket, such as {parts.scheme}://my-bucket/jobs")
    if "@" in parts.netloc:
        raise ConfigError(
            f"{parts.scheme}://: keys do not belong into a URL; set them as the provider's own tools take them,"
            " such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    return Cloud(parts.scheme, parts.netloc, unquote(parts.path), options), replace(Pace(), **always)
