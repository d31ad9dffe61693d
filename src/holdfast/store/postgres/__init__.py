"""The Postgres store: jobs beside the user's own data, enqueued and completed in the user's own transactions."""

from .address import Address
from .store import PostgresStore

__all__ = ["Address", "PostgresStore"]
