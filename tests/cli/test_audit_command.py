"""`holdfast audit`, `edit`, `clone` and `dlq retry --rate`, as a person uses them."""

from __future__ import annotations

import asyncio
import getpass
import socket

from holdfast import Holdfast
from support.dead_jobs import make_dead

ME = f"{getpass.getuser()}@{socket.gethostname()}"


def test_what_was_done_is_listed_with_who_did_it(terminal):
    assert "There are no operator actions" in terminal("audit")
    id = terminal.json("enqueue", "--task", "noop", "--args", '{"a": 1}')["id"]
    terminal("cancel", id)
    terminal("delete", "no-such-job", code=1)
    said = terminal("audit")
    assert all(word in said for word in ("cancel", f"id={id}", "done, 1 job", "refused: there is no job", ME))
    found = terminal.json("audit", "--about", id)
    assert [(one["action"], one["actor"], one["surface"]) for one in found["entries"]] == [("cancel", ME, "cli")]
    page = terminal.json("audit", "-n", "1")
    assert [one["action"] for one in page["entries"]] == ["delete"]
    assert [one["action"] for one in terminal.json("audit", "--cursor", page["cursor"])["entries"]] == ["cancel"]
    assert "use the cursor of an earlier page of the audit log" in terminal("audit", "--cursor", "x", code=2)


def test_an_action_is_undone_by_the_id_of_its_entry(terminal):
    id = terminal.json("enqueue", "--task", "noop")["id"]
    terminal("cancel", id)
    [entry] = terminal.json("audit")["entries"]
    assert "done, 1 job, can be undone" in terminal("audit")
    assert "Undone: 1. Not undone: 0." in terminal("audit", "undo", entry["id"])
    assert terminal.json("show", id)["state"] == "queued"
    assert "1: they have changed since" in terminal("audit", "undo", entry["id"])
    assert terminal.json("audit", "undo", entry["id"])["reasons"] == {"changed": 1}
    assert "there is no entry" in terminal("audit", "undo", "0000000000000001-00000000", code=2)


def test_edit_and_clone(terminal):
    id = terminal.json("enqueue", "--task", "noop", "--args", '{"a": 1}')["id"]
    said = terminal("edit", id, "--args", '{"a": 2}', "--queue", "slow", "--priority", "-3", "--delay", "1h")
    assert "edited: noop(a=2), queue slow, priority -3" in said
    job = terminal.json("show", id)
    assert (job["payload"], job["queue"], job["priority"], job["state"]) == ({"a": 2}, "slow", -3, "scheduled")
    assert terminal.json("edit", id, "--at", "2040-01-01T00:00:00Z")["run_at"].startswith("2040-01-01")
    copy = terminal.json("clone", id, "--args", "[5]", "--key", "k", "--max-attempts", "7")
    assert copy["cloned_from"] == id
    assert terminal.json("show", copy["id"])["max_attempts"] == 7
    assert terminal.json("show", copy["id"])["meta"]["cloned_from"] == id
    for words, why in (
        ((), "nothing to edit"),
        (("--args", "{"), "invalid JSON"),
        (("--args", "7"), "must be a list"),
        (("--delay", "soon"), "takes a duration"),
        (("--at", "2040-01-01T00:00:00"), "needs a time zone"),
        (("--at", "never"), "--at must be a time"),
        (("--priority", "99999"), "priority must be"),
    ):
        assert why in terminal("edit", id, *words, code=2)
    terminal("cancel", id)
    assert "only a waiting job can be edited" in terminal("edit", id, "--priority", "1", code=1)


def test_dead_jobs_are_retried_at_a_rate_without_waiting(terminal):
    url = f"sqlite:///{terminal.folder / 'holdfast.db'}"

    async def fill() -> list[str]:
        async with Holdfast(url) as app:
            return await make_dead(app, 5)

    ids = asyncio.run(fill())
    for words in (("--all", "--rate", "fast"), (ids[0], "--rate", "1/s")):
        assert "nothing was retried" in (said := terminal("dlq", "retry", *words, code=2)) or "rate must be" in said
    assert "5 jobs moved from DLQ to 'scheduled'." in terminal("dlq", "retry", "--all", "--rate", "30/m")
    due = sorted(terminal.json("show", id)["run_at"] for id in ids)
    assert len(set(due)) == 5
