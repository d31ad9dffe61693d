"""Every statement that is not a function of the schema, named and described; each can be pasted into a console.

They are written for the schema `holdfast`; `for_schema` replaces it by another. The operations of a batch are
functions in `migrations/`: one call is one round trip and one transaction.
"""

# ruff: noqa: S608  # put together from the constants of this file alone; values are always bound

from __future__ import annotations

import re

from ...core.waiting import LIMIT_PREFIX
from ..protocol import CONTROL
from .rows import COLUMNS

JOB = ", ".join(COLUMNS)
_JOB_OF_J = ", ".join(f"j.{name}" for name in COLUMNS)
_GENS = "(ARRAY(SELECT gen FROM holdfast.generation))"

# -- enqueue, note, settle, claim

NEW = {
    "ids": "text[]", "queues": "text[]", "tasks": "text[]", "priorities": "integer[]", "delays": "double precision[]",
    "run_ats": "bigint[]", "payloads": "bytea[]", "codecs": "text[]", "max_attempts": "integer[]",
    "timeouts": "double precision[]", "nonces": "bigint[]", "tags": "text[]", "metas": "text[]", "retries": "text[]",
    "waiting_for": "text[]", "limit_keys": "text[]", "extras": "bytea[]", "keys": "text[]", "fingerprints": "text[]",
    "uniques": "text[]", "windows": "double precision[]", "depths": "integer[]", "bound": "boolean",
}  # fmt: skip
"""The arguments of holdfast.write that enqueue, and their types."""
INSERT_ONE = f"SELECT holdfast.insert_one({', '.join(f'${n}' for n in range(1, 16))})"
"""One plain job, cheaper than a batch."""
WRITE = f"SELECT * FROM holdfast.write({', '.join(f'${n}' for n in range(1, 64))})"
"""A whole batch: one round trip, one transaction."""
IDENTITY = (
    "SELECT coalesce(extract(epoch FROM min(applied_at)), 0) || ' ' || current_database() FROM holdfast.migration"
)
"""Which schema of which database this is: when it was made, and the name of the database."""
WRITE_BOUND = f"""
WITH it AS MATERIALIZED (SELECT ({IDENTITY}) AS identity, {{identity}} AS expected)
SELECT answer, NULL AS elsewhere FROM holdfast.write({{arguments}}) WHERE (SELECT identity = expected FROM it)
UNION ALL SELECT NULL, identity FROM it WHERE identity <> expected
"""
"""Enqueue on the user's connection; in another database it writes nothing, and answers with its identity."""

# -- change: read, decide in Python, write; in one transaction

LOCK = "SELECT FROM holdfast.job WHERE id = ANY ($1) ORDER BY seq FOR UPDATE"
"""Lock all jobs of a batch, before anything else, so that two batches never deadlock."""
LOCK_LIVING = f"SELECT {JOB} FROM holdfast.job WHERE id = ANY ($1) ORDER BY seq FOR UPDATE"
LOCK_ENDED = f"SELECT {JOB} FROM holdfast.ended WHERE id = ANY ($1) ORDER BY seq FOR UPDATE"
_CHANGING = (
    "state", "run_at", "attempt", "reset_count", "holder", "pid", "quarantined", "crashes", "cancel", "started_at",
    "finished_at", "expires_at", "payload", "result", "error", "traceback", "progress", "checkpoint", "meta", "history",
    "waiting_for", "extra", "saves", "changed_at", "task", "queue", "priority",
)  # fmt: skip
_SET = ", ".join(f"{name} = ${COLUMNS.index(name) + 1}" for name in _CHANGING)
_USED = ", ".join(f"${n + 1}::{kind}" for n, kind in enumerate((
    "bigint", "text", "text", "text", "text", "integer", "bigint", "bytea", "text", "integer", "double precision",
    "text", "bigint", "integer", "integer", "bigint", "bigint", "text", "integer", "boolean", "integer", "boolean",
    "bigint", "bigint", "bigint", "bytea", "text", "text", "bytea", "bytea", "jsonb", "json", "json", "jsonb",
    "text", "jsonb", "bytea", "integer", "bigint",
)))  # fmt: skip
_TYPED = f"WITH given AS (SELECT {_USED})"
"""Names the type of every parameter, also of parameters that a statement does not use."""
SAVE_LIVING = f"{_TYPED} UPDATE holdfast.job SET {_SET}, gen = holdfast.open_generation() WHERE seq = $1"
SAVE_ENDED = f"{_TYPED} UPDATE holdfast.ended SET {_SET} WHERE seq = $1"
END = f"""
WITH gone AS (DELETE FROM holdfast.job WHERE seq = $1 RETURNING nonce, settled)
INSERT INTO holdfast.ended ({JOB}, nonce, settled) SELECT {_USED}, nonce, settled FROM gone
"""
REVIVE = f"""
WITH gone AS (DELETE FROM holdfast.ended WHERE seq = $1 RETURNING nonce, settled)
INSERT INTO holdfast.job ({JOB}, nonce, settled, gen)
SELECT {_USED}, nonce, settled, holdfast.open_generation() FROM gone
"""
REMOVE = """
WITH living AS (DELETE FROM holdfast.job WHERE seq = ANY ($1)),
    printed AS (DELETE FROM holdfast.output WHERE seq = ANY ($1))
DELETE FROM holdfast.ended WHERE seq = ANY ($1)
"""
SET_KEYS = """
UPDATE holdfast.key AS k SET expires_at = u.expires_at
FROM unnest($1::text[], $2::text[], $3::bigint[]) AS u(key, id, expires_at) WHERE k.key = u.key AND k.id = u.id
"""
"""Set when the keys of these jobs expire; NULL: not before the job ends."""
FORGET_KEYS = """
DELETE FROM holdfast.key AS k USING unnest($1::text[], $2::text[]) AS u(key, id) WHERE k.key = u.key AND k.id = u.id
"""
SET_FINGERPRINTS = """
UPDATE holdfast.key AS k SET fingerprint = u.fingerprint
FROM unnest($1::text[], $2::text[], $3::text[]) AS u(key, id, fingerprint) WHERE k.key = u.key AND k.id = u.id
"""
"""Set the payload fingerprints of the keys of these jobs."""
DEFERRED = f"""
SELECT u.name, (SELECT count(*) FROM holdfast.generation AS g CROSS JOIN LATERAL (
    SELECT FROM holdfast.job AS j
    WHERE j.gen = g.gen AND j.waiting_for = '{LIMIT_PREFIX}' || u.name AND j.state = 'blocked'
        AND j.limit_key IS NOT NULL LIMIT $2) AS h) FROM unnest($1::text[]) AS u(name)
"""
"""How many jobs wait for each of these limit keys, counted up to $2."""
CAPACITY_FREED = """
INSERT INTO holdfast.notice (gen, limit_keys, deferred)
SELECT holdfast.open_generation(), array_agg(u.limit_key), u.deferred
FROM unnest($1::text[], $2::boolean[]) AS u(limit_key, deferred) GROUP BY u.deferred
"""
"""Record that jobs of these limit keys are no longer ready or running; and whether others were deferred then."""
RECORD_ENDED = "SELECT holdfast.record_ended($1)"
END_HANDLED = "DELETE FROM holdfast.record WHERE kind = 'ended' AND name = ANY ($1) AND value = '{}'"
"""Remove the records of ends, unless something was added to `{}`."""
HINT = "SELECT holdfast.hint($1, $2, $3, '{}', $4)"
HINT_ABOUT_RECORD = "SELECT pg_notify('holdfast.', $1) WHERE holdfast.has_listener($2)"
RECORD_TRANSITION = "SELECT holdfast.record_transition(holdfast.micros(), $1, $2)"
NOW = "SELECT holdfast.micros()"

# -- holders

HEARTBEAT = f"""
SELECT holder, heartbeat, EXISTS (SELECT FROM holdfast.record WHERE kind = '{CONTROL}'), job, seq, fence, token, cancel
FROM holdfast.heartbeat($1, $2, $3)
"""
CLAIMS_OF = f"""
SELECT holder, id, seq, fence, token, cancel FROM holdfast.job
WHERE holder = ANY ($1) AND gen = ANY {_GENS} AND state = 'running' ORDER BY seq
"""
LEAVE = """
WITH left_now AS (
    UPDATE holdfast.holder SET expires = holdfast.micros() WHERE id = ANY ($1) RETURNING id
) SELECT id FROM left_now
"""
FORGET_HOLDERS = f"""
DELETE FROM holdfast.holder AS h WHERE h.id = ANY ($1) AND NOT EXISTS (
    SELECT FROM holdfast.job AS j WHERE j.holder = h.id AND j.gen = ANY {_GENS} AND j.state = 'running')
"""
HOLDERS = """
SELECT h.about, h.heartbeat, n.now - h.renewed_at, h.expires > n.now, h.id
FROM holdfast.holder AS h, (SELECT holdfast.micros() AS now) AS n ORDER BY h.id
"""
LOST = f"""
SELECT {_JOB_OF_J}, h.heartbeat FROM holdfast.holder AS h
JOIN holdfast.job AS j ON j.holder = h.id AND j.gen = ANY {_GENS} AND j.state = 'running'
WHERE h.expires <= holdfast.micros() AND ($2::text IS NULL OR true) LIMIT $1
"""
"""Claims whose holder's lease has expired. A holder with running jobs is never removed, so it begins with holders."""
LOST_OF = f"""
SELECT {_JOB_OF_J}, coalesce(h.heartbeat, 0) FROM holdfast.job AS j LEFT JOIN holdfast.holder AS h ON h.id = j.holder
WHERE j.holder = $2 AND j.gen = ANY {_GENS} AND j.state = 'running' LIMIT $1
"""
"""All claims of one holder."""
TIDY = "SELECT jobs, keys, holders FROM holdfast.tidy($1)"

# -- observe

GET = f"""
SELECT {JOB} FROM holdfast.job WHERE id = ANY ($1) UNION ALL SELECT {JOB} FROM holdfast.ended WHERE id = ANY ($1)
"""
KEY_OWNERS = """
SELECT k.key, (SELECT j.id FROM holdfast.job AS j WHERE j.id = k.id) FROM holdfast.key AS k WHERE k.key = ANY ($1)
"""
"""Each of these keys that has a job which has not ended (it is in holdfast.job), and that job."""
FIND = "SELECT {job} FROM {table} WHERE {where} ORDER BY seq DESC LIMIT {limit}"
OUTPUT = """
SELECT position, fence, data FROM (
    SELECT o.position, o.fence, o.data, sum(length(o.data)) OVER (ORDER BY o.position) - length(o.data) AS before
    FROM holdfast.output AS o
    WHERE o.seq = coalesce((SELECT seq FROM holdfast.job WHERE id = $1), (SELECT seq FROM holdfast.ended WHERE id = $1))
        AND o.stream = $4 AND o.position + length(o.data) > $2
) AS piece WHERE before < $3 ORDER BY position
"""
"""Whole pieces of a job's output (or stream: $4) from position $2 on, of at least $3 bytes together."""
STATS = """
SELECT queue, state, count(*), min(run_at) FILTER (WHERE state = 'queued') FROM holdfast.job GROUP BY queue, state
UNION ALL
SELECT queue, state, sum(count)::bigint, NULL FROM holdfast.ended_count GROUP BY queue, state HAVING sum(count) > 0
"""
MINUTES = """
SELECT at, queue, task, outcome, part, count, waited, ran, waits, runs FROM holdfast.minute WHERE at >= $1 AND NOT part
UNION ALL
SELECT at, queue, task, outcome, true, sum(count)::bigint, sum(waited)::bigint, sum(ran)::bigint,
    string_agg(waits, ''), string_agg(runs, '')
FROM holdfast.minute WHERE at >= $1 AND part GROUP BY at, queue, task, outcome
"""
"""The statistics from a time on. Only rows of single commits are added up: the others, of past minutes, are many."""
RECORDS = "SELECT kind, name, value, version FROM holdfast.record WHERE kind = ANY ($1)"
PUT_RECORD = """
INSERT INTO holdfast.record AS r (kind, name, value) SELECT $1, $2, $3
WHERE $4::bigint IS NULL OR $4 = 0
    OR EXISTS (SELECT FROM holdfast.record WHERE kind = $1 AND name = $2 AND version = $4)
ON CONFLICT (kind, name) DO UPDATE SET value = excluded.value, version = excluded.version
WHERE $4::bigint IS NULL OR r.version = $4
RETURNING version
"""
"""Set a record, only if its version is $4, if that is given."""
REMOVE_RECORD = """
DELETE FROM holdfast.record WHERE kind = $1 AND name = $2 AND ($3::bigint IS NULL OR version = $3) RETURNING version
"""
RECORD_VERSION = "SELECT version FROM holdfast.record WHERE kind = $1 AND name = $2"

# -- transitions

WATCH = "SELECT watch, fresh, now, gone FROM holdfast.watch($1)"
"""Record transitions for $1 seconds; `fresh`: they were not recorded until now."""
LAST_TRANSITION = "SELECT coalesce(pg_sequence_last_value('holdfast.transition_number'::regclass), 0)"
SNAPSHOT = "SELECT pg_current_snapshot()::text"
UNDER_WAY = """
SELECT pg_snapshot_xmin(s)::text::bigint, pg_snapshot_xmax(s)::text::bigint FROM pg_current_snapshot() AS s
"""
"""The first transaction that has not ended, and the next one to begin."""
TRANSITIONS = """
SELECT m.number, m.at, m.ids, m.states, m.emptied_at IS NOT NULL FROM (
    (SELECT * FROM holdfast.transition WHERE number > greatest($1::bigint, $4::bigint)
        AND pg_visible_in_snapshot(xid, $3::text::pg_snapshot)
        AND NOT pg_visible_in_snapshot(xid, $2::text::pg_snapshot) ORDER BY number LIMIT $5::bigint)
    UNION ALL
    (SELECT * FROM holdfast.transition WHERE number > $4::bigint AND number <= $1::bigint
        AND xid = ANY (ARRAY(SELECT pg_snapshot_xip($2::text::pg_snapshot)))
        AND pg_visible_in_snapshot(xid, $3::text::pg_snapshot) ORDER BY number LIMIT $5::bigint)
) AS m ORDER BY m.number LIMIT $5::bigint
"""
"""Transitions after the commit point ($1, $2), up to the snapshot $3, with a number above $4."""

# -- notifications

LISTEN = 'LISTEN "holdfast."'
REQUEST_HINTS = "SELECT pg_advisory_lock_shared(holdfast.lock_class(), $1)"
"""Advisory locks by which senders of hints see that a process listens."""
STOP_HINTS = "SELECT pg_advisory_unlock_shared(holdfast.lock_class(), $1)"

# -- generations

ROTATE = "SELECT generations, again FROM holdfast.rotate($1)"
"""Open another generation if the newest has many dead rows for these queues, and move jobs out of old ones."""
RETIRE = "SELECT holdfast.retire()"
"""Remove empty generations; how many are left."""

STRAYS = f"""
SELECT count(*) FROM holdfast.job AS j
WHERE ((j.state <> 'blocked' OR j.waiting_for LIKE '{LIMIT_PREFIX}%')
        AND NOT EXISTS (SELECT FROM holdfast.generation AS g WHERE g.gen = j.gen))
    OR (j.state = 'running' AND NOT EXISTS (SELECT FROM holdfast.holder AS h WHERE h.id = j.holder))
"""
"""Unfinished jobs that no claim or sweep would find; there are none, unless the tables were edited manually."""

# -- connections

READ_COMMITTED = "SET default_transaction_isolation = 'read committed'"
"""For the store's own statements, whatever the database's default is: a claim counts the running jobs of a limit key
after it has waited for its lock, which an older snapshot would not show."""

# -- schema

EXISTS = "SELECT to_regclass('holdfast.migration') IS NOT NULL"
STATE = f"SELECT coalesce(max(version), 0), ({IDENTITY}) FROM holdfast.migration"
"""The version of the schema, and which one it is."""
LOCK_SCHEMA = "SELECT pg_advisory_xact_lock(hashtext('holdfast.'), 0)"
CREATE_SCHEMA = """
CREATE SCHEMA IF NOT EXISTS holdfast;
CREATE TABLE IF NOT EXISTS holdfast.migration (
    version integer NOT NULL PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT now()
)
"""
APPLIED = "INSERT INTO holdfast.migration (version) VALUES ({version})"


def for_schema(text: str, schema: str) -> str:
    """A statement for another schema than `holdfast`."""
    if schema == "holdfast":
        return text
    text = re.sub(r"\bholdfast\.", f"{schema}.", text)
    return re.sub(r"(CREATE SCHEMA IF NOT EXISTS) holdfast\b", rf"\1 {schema}", text)
