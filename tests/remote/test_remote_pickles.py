"""Pickles over HTTP: a server and its clients use one store, by different URLs, and agree on what was signed there."""

import pytest

from holdfast import ConfigError, Holdfast, InvalidJob
from holdfast.app import parts_of
from support.inside import session_of
from support.workers import work_off

pytest.importorskip("cloudpickle")
SIGNED = {"cloudpickle": True, "secret": "a long random text"}
ROLES = {"worker": frozenset({"work"}), "operator": frozenset({"work", "operate"})}


async def test_what_a_client_pickled_is_run_behind_the_server_and_the_other_way_round(serving, tmp_path):
    async with Holdfast(serving.url, **SIGNED) as client, Holdfast(f"sqlite:///{tmp_path}/jobs.db", **SIGNED) as direct:
        for one, other in ((client, direct), (direct, client)):
            handle = await one.enqueue(lambda: "ran")
            await work_off(other)
            assert await handle.result(timeout=30) == "ran"


@pytest.mark.parametrize("token", ROLES)
async def test_no_token_sets_the_stores_id_but_every_worker_learns_it(serve, token, monkeypatch):
    serving = await serve(roles=ROLES)
    monkeypatch.setenv("HOLDFAST_TOKEN", token)
    async with Holdfast(serving.url, **SIGNED) as app:
        assert session_of(app).store_id
        for expect in (None, 0, 1):
            with pytest.raises((ConfigError, InvalidJob), match=r"cannot be set over HTTP|roles? 'operate'"):
                await parts_of(app).records.put("store", "id", b'"mine"', expect)
        assert await session_of(serving.app).identify() == session_of(app).store_id


async def test_a_result_is_read_over_http_by_its_id_alone(serving):
    async with Holdfast(serving.url, **SIGNED) as client, Holdfast(serving.url, **SIGNED) as reader:
        handle = await client.enqueue(lambda: {1, 2})
        await work_off(client)
        assert await reader.handle(handle.id).result(timeout=30) == {1, 2}
