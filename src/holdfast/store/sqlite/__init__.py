"""The SQLite store, the default: jobs in one file, shared by many processes of one machine."""

from .store import SqliteStore

__all__ = ["SqliteStore"]
