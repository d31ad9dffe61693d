"""Translates the driver's errors to Holdfast errors, which say whether the write happened and what to do."""

from __future__ import annotations

import asyncio
import ssl

from ...core.errors import ConfigError, HoldfastError, OutcomeUnknown, StoreRefused, StoreUnavailable
from .driver import asyncpg

AGAIN = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
"""The server rolled the statement back because of a concurrent one: repeat it."""
_GONE = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.IdleSessionTimeoutError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    OSError,
    asyncio.TimeoutError,
    EOFError,
)
_WRONG = (
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InsufficientPrivilegeError,
    asyncpg.ClientConfigurationError,
)
_REFUSED = (
    asyncpg.InsufficientResourcesError,
    asyncpg.OperatorInterventionError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.LockNotAvailableError,
    asyncpg.PostgresSystemError,
    asyncpg.InternalServerError,
)
_NO_SERVER = ("server login has been failing", "pgbouncer cannot connect to server", "query_wait_timeout")
"""pgbouncer's messages to clients that wait for a server. All its errors have SQLSTATE 08P01, so only the text differs
from "server conn crashed?", after which the outcome is unknown. Any other text counts as unknown too.
"""
_MISSING = (asyncpg.UndefinedTableError, asyncpg.UndefinedFunctionError, asyncpg.InvalidSchemaNameError)


def is_gone(error: BaseException) -> bool:
    """Whether the connection cannot be used any more."""
    return isinstance(error, (*_GONE, asyncpg.ReadOnlySQLTransactionError))


def connecting(error: BaseException, shown: str) -> HoldfastError:
    """The error for a connection that could not be made: nothing was written."""
    if isinstance(error, _WRONG):
        return ConfigError(f"{shown}: {error}; check the user, the password and the database of the URL")
    if isinstance(error, ssl.SSLError) and error.library in ("X509", "PEM"):
        return ConfigError(
            f"{shown}: ?sslrootcert=, ?sslcert= or ?sslkey= names a file that is not PEM ({error.reason}); name PEM"
            " files"
        )
    if "unsupported startup parameter" in str(error):
        return ConfigError(f"{shown} is a pgbouncer: add its pool mode to the URL, ?pgbouncer=transaction or =session")
    if isinstance(error, asyncpg.TooManyConnectionsError):
        return StoreUnavailable(
            f"{shown}: the server has no free connection ({error}); nothing was written. Raise its max_connections, or"
            " close connections"
        )
    return StoreUnavailable(
        f"{shown} cannot be reached ({_text(error)}); nothing was written. Check the URL, and that the server is"
        " running"
    )


def reading(error: BaseException, shown: str) -> HoldfastError | None:
    """The error for a failed statement that writes nothing; None for an error of the caller."""
    if isinstance(error, _GONE):
        return StoreUnavailable(f"{shown}: the connection was lost ({_text(error)}); try again")
    return _refused(error, shown)


def writing(error: BaseException, shown: str, *, first: bool = False) -> HoldfastError | None:
    """The error for a failed write; None for an error of the caller. `first`: no statement before it was answered.

    If the server itself refused, nothing was written. If the connection was lost, the outcome is unknown.
    """
    if first and _found_no_server(error):
        return StoreUnavailable(
            f"{shown}: pgbouncer has no free server connection ({_text(error)}); nothing was written. Check pgbouncer's"
            " log"
        )
    if isinstance(error, _GONE):
        return unknown(error, shown)
    return _refused(error, shown)


def unknown(error: BaseException, shown: str) -> OutcomeUnknown:
    """The error for a write that was sent and not answered."""
    return OutcomeUnknown(
        f"{shown}: the connection was lost ({_text(error)}); the write may have happened: check the store before"
        " you repeat the call"
    )


def _found_no_server(error: BaseException) -> bool:
    """Whether pgbouncer gave up before it had a server for the statement, so that it was never sent."""
    cause = error.__cause__ if isinstance(error, asyncpg.ConnectionDoesNotExistError) else error
    return isinstance(cause, asyncpg.ProtocolViolationError) and str(cause).startswith(_NO_SERVER)


def _refused(error: BaseException, shown: str) -> HoldfastError | None:
    if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
        return StoreRefused(
            f"{shown} is a standby or read-only; nothing was written. Name the primary in the URL, or all servers of"
            " the cluster: postgresql://host1,host2/…"
        )
    if isinstance(error, _MISSING):
        return ConfigError(f"{shown} has no Holdfast schema, or an old one ({error}): run `holdfast migrate`")
    if isinstance(error, asyncpg.InsufficientPrivilegeError):
        return ConfigError(f"{shown}: {error}; nothing was written. Grant this permission to the user of the URL")
    if isinstance(error, asyncpg.FeatureNotSupportedError):
        return ConfigError(
            f"{shown} does not support a statement of Holdfast ({error}); nothing was written. Use Postgres 15 or newer"
        )
    if isinstance(error, (*_REFUSED, *AGAIN)):
        return StoreUnavailable(
            f"{shown}: the server refused the statement ({_text(error)}); nothing was written. Correct the cause on the"
            " server, or try again"
        )
    return None


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__
