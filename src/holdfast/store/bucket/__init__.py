"""The store in a bucket (S3, GCS, Azure) or a folder, without a server."""

from .store import BucketStore

__all__ = ["BucketStore"]
