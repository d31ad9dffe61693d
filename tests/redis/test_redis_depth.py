"""Depth: what a claim does on the server is the same whether a thousand jobs wait or a hundred thousand."""

import os

from holdfast.core.operations import Where
from holdfast.store.protocol import CONTROL, Batch
from holdfast.testing.build import ask, holder, new_job, succeeded
from holdfast.testing.verbs import insert

DEEP = int(os.environ.get("HOLDFAST_DEPTH", "60000"))


def calls(server) -> dict[str, int]:
    found = {}
    for line in server.call("INFO", "commandstats").decode().splitlines():
        if line.startswith("cmdstat_") and "calls=" in line:
            name = line.partition(":")[0].removeprefix("cmdstat_")
            found[name] = int(line.partition("calls=")[2].partition(",")[0])
    return found


async def exchange(store, server) -> dict[str, int]:
    """The commands that one exchange of a worker (settle ten, claim ten) makes inside the server."""
    answers = await store.write(Batch(asks=[ask(limit=10)]))
    server.call("CONFIG", "RESETSTAT")
    ends = [succeeded(record) for record in answers.asks[0].records]
    answers = await store.write(Batch(settles=ends, asks=[ask(limit=10)]))
    assert len(answers.asks[0].records) == 10
    made = calls(server)
    for name in ("info", "config|resetstat", "eval"):
        made.pop(name, None)
    return made


async def test_an_exchange_costs_as_many_commands_at_any_depth(start_server, open_at):
    server = start_server()
    store = await open_at(server.url(durability="none"))
    for n in range(2):
        await insert(store, *(new_job(f"shallow-{n}-{m}") for m in range(500)))
    await exchange(store, server)
    shallow = await exchange(store, server)
    for n in range(DEEP // 1000):
        await insert(store, *(new_job(f"{n}-{m}", priority=m % 7) for m in range(1000)))
    deep = await exchange(store, server)
    assert sum(deep.values()) <= 1.5 * sum(shallow.values()), (shallow, deep)
    assert not {"keys", "scan", "smembers", "hgetall", "sort"} & deep.keys()


async def test_an_ask_in_vain_makes_a_handful_of_commands_and_writes_nothing(store, server, prefix):
    await store.write(Batch(asks=[ask()]))
    before = server.info("rdb_changes_since_last_save")
    assert (await store.write(Batch(asks=[ask("ann", "a", "b")]))).asks[0].records == []
    assert server.info("rdb_changes_since_last_save") == before
    assert server.keys(prefix) == [f"{{{prefix}}}:server".encode()]


async def test_a_heartbeat_excludes_requests_to_workers_while_there_are_none(store):
    assert not (await store.heartbeat([holder()]))[0].requests
    await store.put_record(CONTROL, "bob/1", b"{}", 0)
    assert (await store.heartbeat([holder()]))[0].requests
    await store.put_record(CONTROL, "bob/1", None)
    assert not (await store.heartbeat([holder()]))[0].requests


async def test_a_page_of_few_is_found_among_many(start_server, open_at):
    """The dead, the running and the scheduled are looked up, not searched for."""
    server = start_server()
    store = await open_at(server.url(durability="none"))
    await insert(store, new_job("old", queue="rare"), *(new_job(f"{n}") for n in range(999)))
    for n in range(10):
        await insert(store, *(new_job(f"{n}-{m}") for m in range(1000)))
    [claims] = (await store.write(Batch(asks=[ask("ann", "rare")]))).asks
    server.call("CONFIG", "RESETSTAT")
    page = await store.find(Where(states=("running",)), None, 10)
    assert [record.id for record in page.records] == [claims.records[0].id] == ["old"]
    assert sum(calls(server).values()) < 60


async def test_memory_per_queued_job_stays_near_its_payload(start_server, open_at):
    server = start_server()
    store = await open_at(server.url(durability="none"))
    empty = int(server.info("used_memory"))
    for n in range(20):
        await insert(
            store, *(new_job(f"0190a1b2-c3d4-7e5f-8a9b-{n:06}{m:06}", payload=b"x" * 200) for m in range(1000))
        )
    server.call("MEMORY", "PURGE")
    each = (int(server.info("used_memory")) - empty) / 20_000
    print(f"{each:.0f} bytes per queued job with 200 bytes of payload")
    assert each < 200 + 400
