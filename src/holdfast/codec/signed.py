"""Pickles of any callable or value, signed: whoever can write to the store cannot run code in a worker."""

from __future__ import annotations

import hmac
from importlib import import_module
from typing import Any

from ..errors import ConfigError, InvalidJob, requires

_PURPOSE = b"holdfast cloudpickle 1"
_SIZE = 32


class Signed:
    """The cloudpickle codec. Every byte is checked against the secret before anything is unpickled."""

    def __init__(self, secret: str | bytes) -> None:
        key = secret.encode() if isinstance(secret, str) else secret
        if not key:
            raise ConfigError("the cloudpickle codec signs its payloads: set HOLDFAST_SECRET to a long random text")
        with requires("the cloudpickle codec", "cloudpickle", "cloudpickle"):
            self._pickle: Any = import_module("cloudpickle")
        # A key of its own, so that a signature made with the same secret for another purpose is no signature here.
        self._key = hmac.digest(key, _PURPOSE, "sha256")

    def dumps(self, obj: object) -> bytes:
        try:
            pickled: bytes = self._pickle.dumps(obj)
        except Exception as error:
            raise InvalidJob(f"cannot be pickled: {error}") from error
        return self._sign(pickled) + pickled

    def loads(self, data: bytes) -> Any:
        signature, pickled = data[:_SIZE], data[_SIZE:]
        if not hmac.compare_digest(signature, self._sign(pickled)):
            raise InvalidJob("the signature does not match: this was pickled with another secret, or changed since")
        try:
            return self._pickle.loads(pickled)
        except Exception as error:
            raise InvalidJob(f"cannot be unpickled here: {type(error).__name__}: {error}") from error

    def _sign(self, pickled: bytes) -> bytes:
        return hmac.digest(self._key, pickled, "sha256")
