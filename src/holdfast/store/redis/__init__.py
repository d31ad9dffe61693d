"""Jobs in Redis or Valkey: the store for speed, with the same promises."""

from .client import url_of
from .store import RedisStore

__all__ = ["RedisStore", "url_of"]
