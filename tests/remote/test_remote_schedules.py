"""Schedules through a server, which restricts the commands that clients may schedule."""

import logging

import pytest

from holdfast import ConfigError, Holdfast, InvalidJob
from holdfast.app import parts_of
from holdfast.core.errors import ScheduleNotFound
from support.eventually import eventually


async def test_a_refused_schedule_does_not_affect_others(serving, caplog):
    owner = serving.app
    await owner.schedules.put("command", owner.call("shell", command="id"), every=0.5)
    await owner.schedules.put("plain", "noop", every=0.5)
    kept = await owner.schedules.get("command")

    async def made() -> bool:
        await client.schedules.make_due_runs()
        return (await owner.schedules.get("plain")).last_job is not None

    async with Holdfast(serving.url) as client:
        with caplog.at_level(logging.WARNING, "holdfast"):
            await eventually(made)
            await client.schedules.make_due_runs()
    assert await owner.schedules.get("command") == kept
    assert caplog.text.count("schedule command: the server refuses its runs from this worker") == 1


async def test_a_client_deletes_what_it_could_not_put(serving):
    owner = serving.app
    await owner.schedules.put("command", owner.call("shell", command="id"), every=60)
    async with Holdfast(serving.url) as client:
        await client.schedules.delete("command")
        with pytest.raises(ScheduleNotFound):
            await client.schedules.get("command")


async def test_nothing_is_hidden_in_the_mark_of_a_deleted_schedule(store):
    hidden = (
        b'{"deleted": 1, "name": "s", "task": "shell", "rule": {"every": 1}, "payload": {"command": "id"}, "next": 1}'
    )
    with pytest.raises(InvalidJob, match="shell command is not allowed"):
        await store.put_record("schedule", "s", hidden)


async def test_a_workers_token_may_declare_and_run_but_not_change_schedules(serve, monkeypatch):
    serving = await serve(roles={"worker": frozenset({"work"})})
    owner = serving.app
    await owner.schedules.put("byhand", "noop", every=0.2)
    await owner.schedules.put("tick", "noop", every=3600)
    monkeypatch.setenv("HOLDFAST_TOKEN", "worker")
    async with Holdfast(serving.url) as client:
        client.cron(every=0.2, name="incode")(client.task(name="tock")(lambda: None))
        client.cron(every=0.2)(client.task(name="tick")(lambda: None))
        for change in (
            client.schedules.put("new", "noop", every=5),
            client.schedules.put("byhand", "noop", every=5),
            client.schedules.pause("byhand"),
            client.schedules.delete("byhand"),
            parts_of(client).records.put("schedule", "byhand", None),
        ):
            with pytest.raises(ConfigError, match=r"roles? 'operate'"):
                await change
        await client.schedules.declare()

        async def made() -> bool:
            await client.schedules.make_due_runs()
            return all([(await owner.schedules.get(name)).last_job for name in ("byhand", "incode")])

        await eventually(made)
        with pytest.raises(ConfigError, match=r"roles? 'operate'"):
            await client.schedules.pause("incode")
    assert (await owner.schedules.get("tick")).rule.every == 3600, "an operator's is not taken over"
