"""The embedded default: jobs in one SQLite file, shared by many processes of one machine."""

from .store import SqliteStore

__all__ = ["SqliteStore"]
