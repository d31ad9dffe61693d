"""Every key of a store, and whom it belongs to: what is left over is a leak."""

from __future__ import annotations

from collections import Counter, defaultdict

from holdfast.core.job import TERMINAL
from holdfast.core.waiting import LIMIT_PREFIX, write
from holdfast.testing.verbs import every


async def strays(store, server) -> list[str]:
    """The keys under this store's prefix that belong to no job, holder, queue or limit key."""
    head = f"{{{store.address.prefix}}}:"
    records = {str(record.seq): record for record in await every(store)}
    holders = {seen.holder.id for seen in await store.holders()}
    queues = {queue.name for queue in await store.stats()}
    running = Counter(record.holder for record in records.values() if record.state == "running")
    waiting = defaultdict(set)
    in_limit_keys = Counter()
    unsuccessful = defaultdict(set)
    """By queue; "": of all queues."""
    for seq, record in records.items():
        if record.waiting_for is not None:
            waiting[write(record.waiting_for)].add(seq)
        if record.state in ("dead", "cancelled"):
            unsuccessful[""].add(seq)
            unsuccessful[record.queue].add(seq)
        if record.limit_key is not None and record.state == "running":
            in_limit_keys[record.limit_key.name] += 1
    found: list[str] = []

    def must(truth: object, complaint: str) -> None:
        if not truth:
            found.append(complaint)

    hours = {hour.decode() for hour in server.call("ZRANGE", head + "hours", 0, -1)}
    for raw in server.keys(store.address.prefix):
        key = raw.decode().removeprefix(head)
        kind, _, rest = key.partition(":")
        if kind in (
            "seq",
            "server",
            "record-version",
            "counts",
            "ids",
            "keys",
            "key-ends",
            "gone",
            "holders",
            "chunks",
            "ended",
            "hours",
            "limit_key-opens",
            "limit_key-tat",
            "limit_key-rest",
            "limit_key-position",
        ):
            continue  # looked into below, once each
        if kind == "jobs":
            for field in server.call("HKEYS", raw):
                must(field.decode().rstrip("~^") in records, f"{key} has a field {field!r} of no job")
        elif kind in ("output", "stream"):
            must(rest in records, f"{key} is the output of no job")
        elif kind == "holder":
            must(rest in holders, f"{key} is no known holder")
        elif kind == "held":
            must(rest in holders, f"{key} belongs to no known holder")
            must(server.call("SCARD", raw) == running[rest], f"{key} does not hold what runs")
        elif kind in ("ready", "quarantined", "later", "retry"):
            must(rest in queues, f"{key} is a queue without jobs")
            members = [member.decode() for member in server.call("ZRANGE", raw, 0, -1)]
            for member in members:
                seq = (member[17:] if kind in ("ready", "quarantined") else member[1:]).split(":")[0]
                must(seq in records and records[seq].state not in TERMINAL, f"{key} has {member} of no waiting job")
        elif kind == "unsuccessful":
            members = {member.decode() for member in server.call("ZRANGE", raw, 0, -1)}
            must(members == unsuccessful.pop(rest, None), f"{key} has {members}")
        elif kind == "waiting_for":
            members = {member.decode() for member in server.call("ZRANGE", raw, 0, -1)}
            must(members == waiting.pop(rest, None), f"{key} has {members}")
        elif kind == "limit_key-deferred":
            members = {member[17:].decode().split(":")[0] for member in server.call("ZRANGE", raw, 0, -1)}
            must(members == waiting.pop(f"{LIMIT_PREFIX}{rest}", None), f"{key} has {members}")
        elif kind == "limit_key-runs":
            number = int(server.call("GET", raw))
            must(number == in_limit_keys.pop(rest, 0), f"{key} is {number}")
        elif kind == "minutes":
            must(rest in hours, f"{key} is of an hour that is not known")
        elif kind in ("watch", "transitions"):
            must(server.call("HEXISTS", head + "watch", "until"), f"{key} exists without a watch")
        elif kind == "records":
            must(server.call("HLEN", raw), f"{key} is empty")
        else:
            found.append(f"{key} is of no known kind")
    must(not unsuccessful, f"dead and cancelled jobs are in no set: {dict(unsuccessful)}")
    must(not waiting, f"what jobs wait for has no keys: {dict(waiting)}")
    must(not in_limit_keys, f"limit keys in which jobs run have no keys: {dict(in_limit_keys)}")
    kept = {key.decode().rpartition(":")[2] for key in server.keys(store.address.prefix) if b":minutes:" in key}
    must(hours == kept, f"hours are {hours}, with minutes of {kept}")
    ids = {id.decode() for id in server.call("HKEYS", head + "ids")}
    must(ids == {record.id for record in records.values()}, f"ids and jobs differ: {len(ids)} and {len(records)}")
    chunks = {int(chunk) for chunk in server.call("ZRANGE", head + "chunks", 0, -1)}
    must(chunks == {int(seq) // 256 for seq in records}, f"chunks are {chunks}")
    for member in server.call("ZRANGE", head + "ended", 0, -1):
        must(member.decode() in records, f"ended has {member!r} of no job")
    for key in server.call("ZRANGE", head + "key-ends", 0, -1):
        must(server.call("HEXISTS", head + "keys", key), f"key-ends has {key!r}, which no job has")
    counted = {field.decode() for field in server.call("HKEYS", head + "counts")}
    must({field[2:] for field in counted} <= queues, f"counts of queues without jobs: {counted}")
    return found
