"""What the driver's errors mean to a caller: did the write happen, and what is there to do."""

from __future__ import annotations

import asyncio
import ssl

from ...core.errors import ConfigError, HoldfastError, OutcomeUnknown, StoreRefused, StoreUnavailable
from .driver import asyncpg

AGAIN = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
"""The server undid the statement for another's sake: do it again."""
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
_NO_SERVER = (
    "server login has been failing",
    "pgbouncer cannot connect to server",
    "query_wait_timeout",
)
"""What pgbouncer says to clients that wait for a server. All that it says has SQLSTATE 08P01, so that there is nothing
but words to tell these from "server conn crashed?", after which the outcome is unknown. Other words are taken for that.
"""
_MISSING = (asyncpg.UndefinedTableError, asyncpg.UndefinedFunctionError, asyncpg.InvalidSchemaNameError)


def is_gone(error: BaseException) -> bool:
    """Whether the connection can be of no more use."""
    return isinstance(error, (*_GONE, asyncpg.ReadOnlySQLTransactionError))


def connecting(error: BaseException, shown: str) -> HoldfastError:
    """No connection could be made: nothing was written."""
    if isinstance(error, _WRONG):
        return ConfigError(f"{shown}: {error}")
    if isinstance(error, ssl.SSLError) and error.library in ("X509", "PEM"):
        return ConfigError(f"{shown}: sslrootcert, sslcert or sslkey names a file that is not PEM ({error.reason})")
    if "unsupported startup parameter" in str(error):
        return ConfigError(f"{shown} is a pgbouncer: add ?pgbouncer=transaction (or =session, as it pools) to the URL")
    if isinstance(error, asyncpg.TooManyConnectionsError):
        return StoreUnavailable(f"{shown}: the server has no connection left for us ({error}); nothing was written")
    return StoreUnavailable(f"{shown} cannot be reached ({_text(error)}); nothing was written")


def reading(error: BaseException, shown: str) -> HoldfastError | None:
    """A statement that writes nothing failed; None for a fault of the caller."""
    if isinstance(error, _GONE):
        return StoreUnavailable(f"{shown}: the connection was lost ({_text(error)})")
    return _refused(error, shown)


def writing(error: BaseException, shown: str, *, first: bool = False) -> HoldfastError | None:
    """A statement that was sent failed; None for a fault of the caller. `first`: none before it was answered.

    Where the server itself said no, nothing was written. Where the connection ended, nobody can say.
    """
    if first and _found_no_server(error):
        return StoreUnavailable(f"{shown}: pgbouncer has no server for us ({_text(error)}); nothing was written")
    if isinstance(error, _GONE):
        return OutcomeUnknown(f"{shown}: the connection was lost before the answer came ({_text(error)})")
    return _refused(error, shown)


def _found_no_server(error: BaseException) -> bool:
    """Whether pgbouncer gave up before it had a server for the statement, which so never left it."""
    said = error.__cause__ if isinstance(error, asyncpg.ConnectionDoesNotExistError) else error
    return isinstance(said, asyncpg.ProtocolViolationError) and str(said).startswith(_NO_SERVER)


def _refused(error: BaseException, shown: str) -> HoldfastError | None:
    if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
        return StoreRefused(
            f"{shown} is a standby or read-only; nothing was written. Name the primary, or all servers of the cluster:"
            " postgresql://host1,host2/…"
        )
    if isinstance(error, _MISSING):
        return ConfigError(f"{shown} has no Holdfast schema, or an old one ({error}): run `holdfast migrate`")
    if isinstance(error, (asyncpg.InsufficientPrivilegeError, asyncpg.FeatureNotSupportedError)):
        return ConfigError(f"{shown}: {error}")
    if isinstance(error, (*_REFUSED, *AGAIN)):
        return StoreUnavailable(f"{shown}: the server refused ({_text(error)}); nothing was written")
    return None


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__
