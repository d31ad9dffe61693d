"""The store in Redis or Valkey: the fastest one, with the same guarantees."""

from .client import url_of
from .store import RedisStore

__all__ = ["RedisStore", "url_of"]
