"""Signed pickles of any callable or value: write access to the store does not allow running code in a worker."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import msgspec

from ..core.errors import ConfigError, InvalidJob, requires

_PURPOSE = b"holdfast cloudpickle 2"
_SIZE = 32
"""Bytes of a signature, which is the digest."""


class Signed:
    """The cloudpickle codec. Every byte is checked against the secrets before anything is unpickled.

    The first secret signs, all of them are accepted. A signature is valid only for the `place` that it was made for:
    data signed for one task, one store, or as a result, is rejected elsewhere.
    """

    def __init__(self, secrets: Sequence[str]) -> None:
        if not secrets or not all(secrets):
            raise ConfigError("the cloudpickle codec needs a secret: set HOLDFAST_SECRET to a long random text")
        with requires("the cloudpickle codec", "cloudpickle", "cloudpickle"):
            self._pickle: Any = import_module("cloudpickle")
        # Derived keys, so that a signature made with the same secret for another purpose is invalid here.
        self._keys = [hmac.digest(secret.encode(), _PURPOSE, "sha256") for secret in secrets]

    def dumps(self, obj: object, place: Sequence[str]) -> bytes:
        try:
            pickled: bytes = self._pickle.dumps(obj)
        except Exception as error:
            raise InvalidJob(f"the {place[0]} cannot be pickled: {error}; use other values") from error
        return _sign(self._keys[0], place, pickled) + pickled

    def loads(self, data: bytes, place: Sequence[str]) -> Any:
        signature, pickled = data[:_SIZE], data[_SIZE:]
        if not any(hmac.compare_digest(signature, _sign(key, place, pickled)) for key in self._keys):
            raise InvalidJob(
                f"the signature of the pickled {place[0]} does not match: it was made with another secret, for another"
                " task or store, or the data was changed; check that all processes have the same HOLDFAST_SECRET"
            )
        try:
            return self._pickle.loads(pickled)
        except Exception as error:
            raise InvalidJob(
                f"the {place[0]} cannot be unpickled: {type(error).__name__}: {error}; use the same versions of"
                " Python and libraries as the program that pickled it"
            ) from error


def _sign(key: bytes, place: Sequence[str], pickled: bytes) -> bytes:
    own = hmac.digest(key, msgspec.json.encode(place), "sha256")
    return hmac.digest(own, pickled, "sha256")
