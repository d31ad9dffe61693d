"""The store of a `holdfast serve` server: for workers without database credentials, and a broker for a bucket."""

from .store import RemoteStore

__all__ = ["RemoteStore"]
