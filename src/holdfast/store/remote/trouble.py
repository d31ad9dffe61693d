"""Translates error responses of a server: whether the write happened, and what to do."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ...core.errors import (
    ConfigError,
    InvalidJob,
    OutcomeUnknown,
    PayloadTooLarge,
    StoreLost,
    StoreRefused,
    StoreUnavailable,
)
from ..rpc import PROTOCOL_HEADER, Problem


class Unsent(Exception):
    """No connection: the request was not sent."""


class Lost(Exception):
    """The request was sent, and no answer came back."""


class NotTaken(StoreUnavailable):
    """The server refused the request before it was processed: nothing of this request was done."""


class Failed(Exception):
    """The server's store raised an error that is not Holdfast's; group commit then looks for its cause."""


ERRORS: dict[str, type[Exception]] = {
    each.__name__: each
    for each in (StoreUnavailable, StoreRefused, OutcomeUnknown, ConfigError, InvalidJob, PayloadTooLarge, ValueError)
}
"""Errors of the server's store that are raised here as well."""
ERRORS[StoreLost.__name__] = StoreUnavailable  # the server can be restarted on another store


OURS = "urn:holdfast:problem:"
NOT_MADE = frozenset({f"{OURS}store-unavailable", f"{OURS}busy"})
"""Responses before a request is processed."""


def refusal(status: int, headers: Mapping[str, str], body: bytes, where: str) -> Exception:
    """The error for a response that is not a success."""
    problem = _problem(body)
    ours = PROTOCOL_HEADER in headers
    if ours and (known := ERRORS.get(problem.error)) is not None:
        return known(problem.detail if known is ValueError else f"{where}: {problem.detail}")
    if ours and problem.error:
        return Failed(f"{where}: {problem.detail}")
    said = f" ({problem.detail or problem.title})" if problem.detail or problem.title else ""
    if status == 401:
        return ConfigError(f"{where} rejects the token, or requires one{said}: set HOLDFAST_TOKEN or ?token_file=")
    if status == 403:
        return ConfigError(f"{where} forbids this request{said}: use a token with the required role (workers: work)")
    if status == 413:
        return PayloadTooLarge(
            f"{where}: the request is larger than the server accepts{said}; nothing was stored. Send less data in one"
            " call"
        )
    if status in (408, 429) or problem.type in NOT_MADE:
        return NotTaken(f"{where} did not accept the request{said}; nothing was written. Try again later")
    if 300 <= status < 400:
        place = headers.get("Location", "(no Location header)")
        return ConfigError(f"{where} redirects to another URL; use that URL instead: {place}")
    if problem.type.startswith(OURS) and status < 500:
        return ConfigError(f"{where} rejects the request: {problem.detail}")
    if 200 <= status < 500:
        return ConfigError(
            f"{where} is not a Holdfast server: it answered HTTP {status}{said}. Write the URL of a `holdfast serve`"
        )
    # A proxy answered instead of the server: it is unknown whether the request was processed.
    return Lost(f"the answer was HTTP {status}{said}")


def _problem(body: bytes) -> Problem:
    try:
        return msgspec.json.decode(body, type=Problem)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Problem()
