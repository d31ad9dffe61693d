"""The store for teams: jobs in Postgres, beside the user's own data and in the user's own transactions."""

from .place import Place
from .store import PostgresStore

__all__ = ["Place", "PostgresStore"]
