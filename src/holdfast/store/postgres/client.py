"""Makes the address of a store from the user's asyncpg pool; the pool's own connections are not used."""

from __future__ import annotations

from typing import Any

from ...core.errors import ConfigError
from .address import Address


def address_of(pool: Any) -> Address:
    """The default schema of the pool's database, reached by new connections with the pool's settings.

    A pool without a statement cache is used as with `?pgbouncer=transaction`: no prepared statements and no LISTEN.
    Functions that the pool runs on its connections (`init`, `setup`) are not run: they could change types of values.
    """
    try:
        make, _, settings = pool._connect, pool._connect_args, pool._connect_kwargs  # noqa: SLF001
    except AttributeError:
        raise ConfigError(
            f"a {type(pool).__name__} of {type(pool).__module__} cannot be used as a store: pass an asyncpg pool of"
            " asyncpg.create_pool(…), or a URL"
        ) from None

    async def connect() -> Any:  # with the arguments of the last set_connect_args
        return await make(*pool._connect_args, **pool._connect_kwargs)  # noqa: SLF001

    # Without a statement cache, as pgbouncer in transaction mode needs it.
    return Address("", pgbouncer="transaction" if settings.get("statement_cache_size") == 0 else None, connect=connect)
