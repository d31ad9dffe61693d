"""Jobs in Redis or Valkey: the store for speed, with the same promises."""

from .store import RedisStore

__all__ = ["RedisStore"]
