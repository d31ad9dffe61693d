"""What a token with the role `work` alone may write: each service declares it, and every kind of record is declared."""

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import holdfast
from holdfast import Holdfast
from holdfast.app import parts_of
from holdfast.client import pauses, signals
from holdfast.client.control import ControlReply
from holdfast.core.errors import ConfigError, InvalidJob, StoreUnavailable
from holdfast.core.operations import Change, Holder, Patch
from holdfast.core.waiting import Waiting
from holdfast.declarations import WORKER_WRITES
from holdfast.flows import worker_writes as flows
from holdfast.flows.creation import Pending
from holdfast.http import tokens
from holdfast.schedules import schedule
from holdfast.store.protocol import Batch, records_of
from holdfast.store.worker_writes import Declarations, RecordWrite
from support.inside import session_of

SOURCE = Path(holdfast.__file__).parent
DECLARED = Declarations((*WORKER_WRITES, tokens.WRITES))
ELSEWHERE = {"self.feed.kind": "webhook"}
"""Kinds that a module is given as a value."""
OF_WORKERS = {"awaited", "ended", "flow:x", "signal", "signal:x", "signal_hour", "signal_hour:x"}
"""Kinds of which a worker may write any value."""
LIKE_THEM = ["flow", "ended:x", "ended ", "signals:x", ":signal", "token:x", "schedule:x", "unheard-of"]
WOKEN = Patch(state="queued", delay=0.0, checkpoint=b"{}")


def used_kinds() -> Iterator[tuple[str, str]]:
    """Every kind that the package reads or writes, and where."""
    for path in sorted(SOURCE.rglob("*.py")):
        place = path.relative_to(SOURCE)
        if place.parts[0] in ("store", "testing"):  # an engine keeps what it is given
            continue
        module = ".".join(("holdfast", *place.with_suffix("").parts))
        for function in ast.walk(ast.parse(path.read_text())):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            handed_on = {one.arg for one in function.args.args} - {"self"}
            for call in ast.walk(function):
                if not isinstance(call, ast.Call) or not call.args:
                    continue
                for kind in _kinds(call):
                    said = ast.unparse(kind)
                    if said.partition(".")[0] not in handed_on:
                        yield _value(kind, said, module), f"{place}:{call.lineno}"


def _kinds(call: ast.Call) -> list[ast.expr]:
    """The kinds of records that a call names."""
    if isinstance(call.func, ast.Name):
        return call.args[1:2] if call.func.id == "records_of" else []
    if not isinstance(call.func, ast.Attribute):
        return []
    name, whose = call.func.attr, ast.unparse(call.func.value)
    if name == "records":
        return call.args[0].elts if isinstance(call.args[0], ast.List) else []
    by_service = name in {"all", "recent", "put"} and whose.endswith("records")
    watched = name in {"of", "watch"} and whose.endswith("watched")
    return call.args[:1] if name == "put_record" or by_service or watched else []


def _value(node: ast.expr, said: str, module: str) -> str:
    if said in ELSEWHERE:
        return ELSEWHERE[said]
    if isinstance(node, ast.Call):  # a kind for each name: `kind_of(name)`
        said = f"{ast.unparse(node.func)}('x')"
    return eval(said, vars(importlib.import_module(module)))


def test_every_kind_of_record_is_declared_by_its_service():
    used = dict(used_kinds())
    assert {"config", "pause", "schedule", "signal:x", "flow:x", "token", "webhook"} <= used.keys(), "the scan is blind"
    assert not {kind: at for kind, at in used.items() if DECLARED.of(kind).kind not in DECLARED.kinds}


def test_no_kind_of_record_is_declared_twice():
    kinds = [kind.kind for service in (*WORKER_WRITES, tokens.WRITES) for kind in service.records]
    assert len(kinds) == len(set(kinds))


@pytest.fixture
async def store(serve, open_at, monkeypatch):
    """The store for a client with only the role `work`."""
    server = await serve(roles={"worker": frozenset({"work"})})
    monkeypatch.setenv("HOLDFAST_TOKEN", "worker")
    return await open_at(server.url)


@pytest.mark.parametrize(
    "kind", [*(f"{kind}x" if kind.endswith(":") else kind for kind in sorted(DECLARED.kinds)), *LIKE_THEM]
)
@pytest.mark.parametrize("value", [b"1", None], ids=["set", "remove"])
async def test_a_worker_writes_only_records_that_are_declared_for_workers(store, kind, value):
    if kind in OF_WORKERS:
        assert await store.put_record(kind, "n", value)
    else:
        with pytest.raises(ConfigError, match=r"roles? 'operate'"):
            await store.put_record(kind, "n", value)


@pytest.mark.parametrize("left", [Pending(cancel=True), Pending(delete=1)], ids=["cancel", "delete"])
async def test_a_worker_has_no_flow_cancelled_or_deleted(store, left):
    with pytest.raises(ConfigError, match=r"roles? 'operate'"):
        await store.put_record("ended", "f", msgspec.json.encode(left))


async def test_a_flow_grows_by_one_job_at_a_time(store):
    assert await store.put_record("flow:f", "jobs", b"1", 0)
    with pytest.raises(InvalidJob, match="its number of jobs cannot change from 1 to 3"):
        await store.put_record("flow:f", "jobs", b"3")


@pytest.mark.parametrize(
    ("service", "patch", "allowed"),
    [
        (flows, Patch(state="queued"), True),
        (flows, Patch(state="blocked", waiting_for=Waiting("dependency", "f.1")), True),
        (flows, WOKEN, False),
        (flows, Patch(state="cancelled"), False),
        (pauses, Patch(state="queued"), True),
        (pauses, Patch(state="blocked", waiting_for=Waiting("dependency", "f.1")), False),
        (signals, WOKEN, True),
        (signals, Patch(state="scheduled", delay=9.0, waiting_for=Waiting("signal", "s")), True),
        (signals, Patch(state="queued", meta={}), False),
    ],
)
def test_a_service_declares_the_changes_that_its_workers_make(service, patch, allowed):
    assert service.WRITES.change(Change("a", "blocked", 0, patch)) == allowed
    assert not service.WRITES.change(Change("a", "queued", 0, patch)), "it does not wait"


async def test_a_schedule_that_is_deleted_meanwhile_is_no_way_to_make_another():
    async with Holdfast("memory://") as app:
        kept = await app.schedules.put("s", "noop", every=60)
        write = RecordWrite("schedule", "s", msgspec.json.encode(kept), 0)
        [declared] = schedule.WRITES.records
        assert not await declared.worker(session_of(app).store, write)
        later = (await parts_of(app).records.all("schedule"))["s"].version + 1
        assert not await declared.worker(session_of(app).store, msgspec.structs.replace(write, expect=later))
        in_code = msgspec.json.encode(msgspec.structs.replace(kept, in_code=True))
        assert await declared.worker(session_of(app).store, msgspec.structs.replace(write, value=in_code))


@pytest.mark.parametrize("roles", [("work",), ("work", "operate")], ids="+".join)
async def test_no_role_reads_or_makes_tokens_or_sets_the_stores_id(serve, open_at, monkeypatch, roles):
    server = await serve(roles={"somebody": frozenset(roles)})
    monkeypatch.setenv("HOLDFAST_TOKEN", "somebody")
    store = await open_at(server.url)
    with pytest.raises(ConfigError, match="cannot be read or written over HTTP"):
        await records_of(store, "token")
    for kind, name in (("token", "t"), ("store", "id")):
        for value in (b"1", None):
            with pytest.raises(ConfigError, match=r"cannot be read or written|cannot be set|roles? 'operate'"):
                await store.put_record(kind, name, value)
    assert (await records_of(store, "store")).keys() == {"id"}


async def test_an_unavailable_store_is_reported_to_a_worker_that_deregisters(serve, open_at, monkeypatch):
    server = await serve(roles={"worker": frozenset({"work"})})
    monkeypatch.setenv("HOLDFAST_TOKEN", "worker")
    store = await open_at(server.url)

    async def away(kind):
        raise StoreUnavailable("the store is away")

    monkeypatch.setattr(session_of(server.app).store, "records", away)
    with pytest.raises(StoreUnavailable, match="the store is away"):
        await store.put_record("schedule", "s", b"1", 0)


async def test_a_worker_takes_and_answers_only_requests_to_itself(serve, open_at, monkeypatch):
    server = await serve(roles={name: frozenset({"work"}) for name in ("one", "two")})
    monkeypatch.setenv("HOLDFAST_TOKEN", "one")
    one = await open_at(server.url)
    monkeypatch.setenv("HOLDFAST_TOKEN", "two")
    two = await open_at(server.url)
    reply = msgspec.json.encode(ControlReply("w1", "quiet"))
    await one.heartbeat([Holder("w1", 60.0)])
    await two.heartbeat([Holder("w2", 60.0), Holder("w1", 60.0)])
    owned = session_of(server.app).store
    await owned.put_record("control", "w1/a", b"{}")
    version = (await records_of(owned, "control"))["w1/a"].version
    for kind, value, expect in (("control", None, version), ("control_reply", reply, None)):
        with pytest.raises(ConfigError, match=r"roles? 'operate'"):
            await two.put_record(kind, "w1/a", value, expect)
        assert await one.put_record(kind, "w1/a", value, expect)
    with pytest.raises(ConfigError, match=r"roles? 'operate'"):
        await one.records(["control_reply"])  # the stacks of other workers


async def test_a_live_worker_undoes_the_crash_count_of_a_job_that_was_recovered(serve, open_at, monkeypatch):
    server = await serve(roles={"worker": frozenset({"work"})})
    monkeypatch.setenv("HOLDFAST_TOKEN", "worker")
    store = await open_at(server.url)
    handle = await server.app.enqueue("noop")
    counted = Change(handle.id, "queued", 0, Patch(quarantined=True, crashes=1))
    assert await session_of(server.app).commit.change([counted]) == [True]
    undone = Change(handle.id, "queued", 0, Patch(quarantined=False, crashes=0))
    assert (await store.write(Batch(changes=[undone]))).changes == [True]
    assert not (await handle.job()).quarantined
    queued = msgspec.structs.replace(undone, patch=Patch(state="queued", quarantined=False, crashes=0))
    with pytest.raises(ConfigError, match=r"roles? 'operate'"):
        await store.write(Batch(changes=[queued]))
    assert (await server.app.audit.list()).entries == []
