"""A bucket as a store: S3, GCS, Azure or a folder, and no server at all."""

from .store import BucketStore

__all__ = ["BucketStore"]
