"""The user's own asyncpg pool instead of a URL."""

from __future__ import annotations

import asyncpg
import pytest

from holdfast import ConfigError, Holdfast
from holdfast.store.postgres.client import address_of
from support.workers import work_off


async def test_an_app_connects_as_the_users_pool_does(server):
    seen = []

    async def connect(*args, **settings):
        seen.append(settings["server_settings"])
        return await asyncpg.connect(*args, **settings)

    settings = {"application_name": "my-shop"}
    pool = asyncpg.create_pool(server.url, min_size=0, connect=connect, server_settings=settings, init=pytest.fail)
    app = Holdfast(pool)

    @app.task
    async def double(n: int) -> int:
        return 2 * n

    async with app:
        handle = await double.enqueue(4)
        await work_off(app)
        assert await handle.result(30) == 8
    assert seen[0] == settings
    assert repr(app) == "Holdfast('postgres://')"


async def test_later_arguments_of_the_pool_are_used(server):
    pool = asyncpg.create_pool("postgresql://localhost:1/none", min_size=0)
    app = Holdfast(pool)
    pool.set_connect_args(server.url)
    async with app:
        assert (await app.enqueue("noop")).id


async def test_a_pool_without_a_statement_cache_is_used_as_with_pgbouncer():
    assert address_of(asyncpg.create_pool(min_size=0, statement_cache_size=0)).shared
    assert not address_of(asyncpg.create_pool(min_size=0, statement_cache_size=10)).shared


async def test_an_invalid_url_of_the_pool_does_not_show_its_password():
    pool = asyncpg.create_pool("postgresql://me:sec/ret@localhost/jobs", min_size=0)
    with pytest.raises(ConfigError, match="URL or the settings of the connection are not valid") as caught:
        await Holdfast(pool).open()
    assert ("sec" in str(caught.value), caught.value.__cause__) == (False, None)


class Wrong:
    """An object of the driver that is no pool."""

    __module__ = "asyncpg.wrong"


def test_another_object_of_asyncpg_is_refused():
    with pytest.raises(ConfigError, match=r"a Wrong of asyncpg\.wrong cannot be used as a store: pass an asyncpg pool"):
        Holdfast(Wrong())
