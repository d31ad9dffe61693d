"""The Postgres store: jobs beside the user's own data, enqueued and completed in the user's own transactions."""

from .place import Place
from .store import PostgresStore

__all__ = ["Place", "PostgresStore"]
