"""Every statement of this store, named and described; each can be pasted into a console.

Values are bound by position, with a plain `?` for each: Python 3.12.0 to 3.12.3 warn about a numbered one (`?1`).

`INDEXED BY` makes a plan independent of statistics: without its index a statement fails instead of growing slow.
"""

# ruff: noqa: S608  # put together from the constants of this file alone; values are always bound

from __future__ import annotations

from ...core.clock import MICROS
from ...core.histogram import BOUNDS, BUCKETS, LETTERS
from ...core.job import STORED, TERMINAL
from ...core.waiting import LIMIT_PREFIX
from ..protocol import LARGE

INLINE_PAYLOAD = 2048
"""Bytes of payload that stay in the job's row; longer ones go to holdfast_payload."""

_PAYLOAD = "coalesce(payload, (SELECT body FROM holdfast_payload AS big WHERE big.seq = holdfast_job.seq))"
_SPELT_OUT = {"payload": _PAYLOAD, "limit_key": "limit_key, bounds"}
JOB = ", ".join(_SPELT_OUT.get(name, name) for name in STORED)
"""The columns of a Record, in its order; a limit key is two."""
_FINAL = ", ".join(f"'{state}'" for state in sorted(TERMINAL))

# -- transactions

BEGIN_READ = "BEGIN"
BEGIN_WRITE = "BEGIN IMMEDIATE"
NO_WAIT = "PRAGMA busy_timeout = 0"
WAIT = "PRAGMA busy_timeout = {milliseconds}"
COMMIT = "COMMIT"
ROLLBACK = "ROLLBACK"
READ_ONLY = "PRAGMA query_only = 1"
CHECKPOINT = "PRAGMA wal_checkpoint(PASSIVE)"
"""Copy the log into the database as far as readers allow."""

# -- schema

SCHEMA_TABLE = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'holdfast_schema'"
SCHEMA_VERSION = "SELECT max(version) FROM holdfast_schema"
SCHEMA_STEP = "INSERT INTO holdfast_schema (version, applied_at) VALUES ({version}, {now})"
NOW = f"CAST(strftime('%s', 'now') AS INTEGER) * {MICROS}"
"""The wall clock of the process that runs a dumped schema."""
SEAL = (
    "UPDATE holdfast_schema SET applied_at = applied_at + 1 WHERE version = (SELECT max(version) FROM holdfast_schema)"
)
"""Writes a page, over the frames of a failed commit in the log. (An unchanged value would not be written.)"""

# -- enqueue

INSERT = """
INSERT INTO holdfast_job (id, queue, task, state, priority, run_at, payload, codec, max_attempts, timeout, key,
    created_at, tags, meta, retry, nonce, waiting_for, limit_key, bounds, extra)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO NOTHING
"""
MANY, SOME = 25, 5
"""Rows of one statement for several: they share the cost of a statement, and its common values."""
_INSERT_NOW = """
INSERT INTO holdfast_job (created_at, run_at, state, id, queue, task, priority, payload, codec, max_attempts, timeout,
    key)
VALUES {rows} ON CONFLICT (id) DO NOTHING
"""
INSERT_NOW = {
    count: _INSERT_NOW.format(rows=", ".join(["(?, ?, 'queued', ?, ?, ?, ?, ?, ?, ?, ?, ?)"] * count))
    for count in (1, SOME, MANY)
}
"""Insert jobs that are ready at once and have only ordinary columns."""
_INSERT_ALIKE = """
INSERT INTO holdfast_job (created_at, run_at, state, id, queue, task, priority, payload, codec, max_attempts, timeout)
WITH same (at, queue, task, priority, codec, max_attempts, timeout) AS (VALUES (?, ?, ?, ?, ?, ?, ?)),
    new (id, payload) AS (VALUES {rows})
SELECT at, at, 'queued', id, queue, task, priority, payload, codec, max_attempts, timeout FROM new CROSS JOIN same
WHERE true ON CONFLICT (id) DO NOTHING
"""
INSERT_ALIKE = {count: _INSERT_ALIKE.format(rows=", ".join(["(?, ?)"] * count)) for count in (1, SOME, MANY, 100)}
"""The same for jobs without keys that differ only in id and payload: values that are bound once cost less."""
_INSERT_LIMITED = """
INSERT INTO holdfast_job (created_at, state, run_at, id, queue, task, priority, payload, codec, max_attempts, timeout,
    key, limit_key, bounds)
VALUES {rows} ON CONFLICT (id) DO NOTHING
"""
INSERT_LIMITED = {
    count: _INSERT_LIMITED.format(rows=", ".join(["(?, 'queued', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"] * count))
    for count in (1, SOME, MANY)
}
"""The same for jobs with limit keys, each with its own `run_at`."""
INSERT_PAYLOAD = "INSERT INTO holdfast_payload (seq, body) VALUES (?, ?)"
NONCE = "SELECT nonce FROM holdfast_job WHERE id = ?"
KEY = """
SELECT CAST(id AS TEXT), fingerprint, CAST(made_at AS INTEGER) FROM holdfast_key
WHERE key = ? AND (expires_at IS NULL OR expires_at > ?)
"""
KNOWS_KEY = """
SELECT EXISTS (SELECT 1 FROM holdfast_key WHERE key IN (SELECT value FROM json_each(?))
    AND (expires_at IS NULL OR expires_at > ?))
"""
"""Whether one of the keys in a JSON list belongs to a job."""
STATE = "SELECT state FROM holdfast_job WHERE id = ?"
KEY_OWNER = f"""
SELECT id FROM holdfast_job WHERE id = (SELECT CAST(id AS TEXT) FROM holdfast_key WHERE key = ?)
    AND state NOT IN ({_FINAL})
"""
"""The job that has a key and has not ended."""
_PUT_KEY = "INSERT OR REPLACE INTO holdfast_key (key, id, fingerprint, made_at) VALUES {rows}"
PUT_KEY = {count: _PUT_KEY.format(rows=", ".join(["(?, ?, ?, ?)"] * count)) for count in (1, SOME, MANY)}
END_KEY = "UPDATE holdfast_key SET expires_at = ? WHERE key = ? AND id = ?"
CHANGE_KEY = "UPDATE holdfast_key SET fingerprint = ? WHERE key = ? AND id = ?"
REMOVE_KEY = "DELETE FROM holdfast_key WHERE key = ? AND id = ?"
DEPTH = """
SELECT (SELECT count(*) FROM holdfast_job INDEXED BY holdfast_ready WHERE queue = ? AND state = 'queued')
     + (SELECT count(*) FROM holdfast_job INDEXED BY holdfast_due WHERE queue = ? AND state IN ('scheduled', 'failed'))
"""
"""The waiting jobs of one queue (given twice)."""

# -- claim

PAUSED = "SELECT name FROM holdfast_record WHERE kind = 'pause'"
PROMOTE = """
UPDATE holdfast_job SET state = 'queued' WHERE seq IN (
    SELECT seq FROM holdfast_job INDEXED BY holdfast_due
    WHERE queue = ? AND state IN ('scheduled', 'failed') AND run_at <= ? ORDER BY run_at, seq LIMIT ?)
"""
"""Make due jobs of one queue ready, the longest due first."""
NEXT_DUE = """
SELECT CAST(run_at AS INTEGER) FROM holdfast_job INDEXED BY holdfast_due
WHERE queue = ? AND state IN ('scheduled', 'failed') ORDER BY run_at LIMIT 1
"""
_READY = (
    "FROM holdfast_job INDEXED BY holdfast_ready WHERE queue = ? AND state = 'queued' AND quarantined = {quarantined}"
)
_PLACE = "CAST(priority AS INTEGER), CAST(run_at AS INTEGER), seq"
_CRASHES = ", CAST(crashes AS INTEGER)"
"""As numbers, also if the values are damaged."""
_OF_TASKS = " AND task IN (SELECT value FROM json_each(?))"
_IN_ORDER = " ORDER BY priority, run_at, seq LIMIT {limit}"
_TAKE = """
UPDATE holdfast_job SET state = 'running', attempt = attempt + 1, fence = fence + 1, pid = NULL,
    holder = ?, token = ?, started_at = ?"""
_FEW = f"""
seq, id, task, priority, run_at, {_PAYLOAD}, codec, max_attempts, timeout, key, created_at, attempt, reset_count, fence,
crashes = 0 AND cancel = 0 AND saves = 0
    AND coalesce(result, error, traceback, progress, checkpoint, tags, meta, retry, history, waiting_for, extra,
        changed_at) IS NULL,
limit_key, bounds
"""
FIRST = {
    (quarantined, some): f"SELECT {_PLACE}{_CRASHES * quarantined} {_READY}{_OF_TASKS * some}{_IN_ORDER}".format(
        quarantined=quarantined, limit=1
    )
    for quarantined in (0, 1)
    for some in (False, True)
}
"""The place of the first ready job of a queue, then a quarantined job's crashes; by (quarantined?, some tasks?)."""
_OF_CRASHES = " AND CAST(crashes AS INTEGER) = ?"
_FIRST_READY = {
    (quarantined, some): f"{_READY}{_OF_TASKS * some}{_OF_CRASHES * quarantined}{_IN_ORDER}".format(
        quarantined=quarantined, limit="?"
    )
    for quarantined in (0, 1)
    for some in (False, True)
}
SELECT_READY = {which: f"SELECT {_FEW} {ready}" for which, ready in _FIRST_READY.items()}
"""The first ready jobs of a queue, in order: the few columns that differ between new jobs (a column costs as much as
a comparison), whether all others have their initial values, and the limit key. Other jobs are read again by BY_SEQS.
Of quarantined jobs, the ones with the given crashes."""
TAKE = {some: f"{_TAKE} WHERE seq IN (SELECT seq {_FIRST_READY[0, some]})" for some in (False, True)}
"""Claim the jobs that SELECT_READY has just read, if all of them are plain."""
TAKE_THESE = f"{_TAKE}, waiting_for = NULL WHERE seq IN (SELECT value FROM json_each(?))"
TAKEN_ALONE = "UPDATE holdfast_job SET crashes = 0 WHERE seq = ?"
"""Set `crashes` of a quarantined job that was claimed alone: a crash from now on is due to this job."""
BY_SEQS = f"SELECT {JOB} FROM holdfast_job WHERE seq IN (SELECT value FROM json_each(?))"
RENEW_FOR_CLAIM = """
INSERT INTO holdfast_holder (id, about, heartbeat, renewed_at, expires, boot_id, seen_at) VALUES (?, ?, 1, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET heartbeat = heartbeat + 1, renewed_at = excluded.renewed_at, expires = excluded.expires,
    boot_id = excluded.boot_id, seen_at = excluded.seen_at
WHERE holdfast_holder.expires - excluded.renewed_at < ? OR holdfast_holder.boot_id <> excluded.boot_id
"""
"""Renew a holder's lease if half of it (the last value) is over."""

# -- limit keys

_END_OF_READY = """
SELECT CAST(run_at AS INTEGER) FROM holdfast_job INDEXED BY holdfast_ready
WHERE queue = ? AND state = 'queued' AND quarantined = 0 AND priority = ? ORDER BY run_at {order} LIMIT 1
"""
ENDS = f"SELECT ({_END_OF_READY.format(order='ASC')}), ({_END_OF_READY.format(order='DESC')})"
"""The first and the last `run_at` of the ready jobs of a queue and a priority (both given twice)."""
LIMITERS = """
SELECT limit_key, CAST(tat AS INTEGER), CAST(rest_until AS INTEGER), CAST(finish AS INTEGER), CAST(opens_at AS INTEGER)
FROM holdfast_limiter WHERE limit_key IN (SELECT value FROM json_each(?))
"""
PUT_LIMITER = {
    count: "INSERT OR REPLACE INTO holdfast_limiter (limit_key, tat, rest_until, finish, opens_at) VALUES "
    + ", ".join(["(?, ?, ?, ?, ?)"] * count)
    for count in (1, SOME, MANY)
}
REMOVE_LIMITER = "DELETE FROM holdfast_limiter WHERE limit_key = ?"
REST = """
INSERT INTO holdfast_limiter (limit_key, rest_until) VALUES (?, ?)
ON CONFLICT (limit_key) DO UPDATE SET rest_until = max(rest_until, excluded.rest_until)
"""
_DEFERRED = (
    "FROM holdfast_job AS deferred INDEXED BY holdfast_deferred"
    " WHERE deferred.waiting_for = {limit_key} AND deferred.limit_key IS NOT NULL"
)
CAPACITY_FREED = f"""
INSERT INTO holdfast_limiter (limit_key, opens_at) SELECT freed.value, ? FROM json_each(?) AS freed
WHERE EXISTS (SELECT 1 {_DEFERRED.format(limit_key=f"'{LIMIT_PREFIX}' || freed.value")})
ON CONFLICT (limit_key) DO UPDATE SET opens_at = excluded.opens_at
"""
"""Open the limiters of limit keys at a time, if they have deferred jobs."""
OPENING = """
SELECT limit_key FROM holdfast_limiter INDEXED BY holdfast_opening WHERE opens_at <= ?
ORDER BY opens_at, limit_key LIMIT ?
"""
LATE_RATES = """
SELECT limit_key, CAST(tat AS INTEGER) FROM holdfast_limiter INDEXED BY holdfast_opening
WHERE opens_at > ? AND tat > ? ORDER BY opens_at DESC LIMIT ?
"""
"""Limit keys that open after a time, the last ones first."""
FREE_RATE = "UPDATE holdfast_limiter SET tat = 0, opens_at = ? WHERE limit_key = ? AND tat = ?"
NEXT_OPENING = """
SELECT CAST(opens_at AS INTEGER) FROM holdfast_limiter INDEXED BY holdfast_opening
WHERE opens_at IS NOT NULL ORDER BY opens_at LIMIT 1
"""
RUNNING_OF_LIMIT_KEYS = """
SELECT limit_key, count(*) FROM holdfast_job INDEXED BY holdfast_limit_key
WHERE limit_key IN (SELECT value FROM json_each(?)) AND state = 'running' GROUP BY limit_key
"""
_DEFERRED_BY = _DEFERRED.format(limit_key=f"'{LIMIT_PREFIX}' || name.value")
FIRST_DEFERRED = f"""
SELECT name.value, first.seq, first.bounds, (SELECT 1 {_DEFERRED_BY} LIMIT 1 OFFSET 1)
FROM json_each(?) AS name CROSS JOIN holdfast_job AS first
WHERE first.seq = (SELECT deferred.seq {_DEFERRED_BY} ORDER BY deferred.priority, deferred.run_at, deferred.seq LIMIT 1)
"""
"""The first deferred job of each of these limit keys, and whether there are more; no row for a key without any."""
ANY_DEFERRED = f"SELECT 1 {_DEFERRED.format(limit_key='?')} LIMIT 1"
DEFER = f"""
UPDATE holdfast_job SET state = 'blocked', waiting_for = '{LIMIT_PREFIX}' || limit_key
WHERE seq IN (SELECT value FROM json_each(?))
"""
RELEASE = f"""
UPDATE holdfast_job SET state = 'queued', waiting_for = NULL
WHERE seq IN (SELECT seq {_DEFERRED.format(limit_key="?")} ORDER BY priority, run_at, seq LIMIT ?)
"""
RELEASE_THESE = """
UPDATE holdfast_job SET state = 'queued', waiting_for = NULL WHERE seq IN (SELECT value FROM json_each(?))
"""

# -- note, settle, change

_CLAIMED = "seq = ? AND id = ? AND fence = ? AND token = ? AND state = 'running' AND key IS ?"
END = f"""
UPDATE holdfast_job SET state = ?, attempt = ?, quarantined = ?, crashes = ?, cancel = 0, result = ?, error = ?,
    traceback = ?, finished_at = ?, expires_at = ?, settled = ?
WHERE {_CLAIMED}
"""
"""Settle a claim for good. Written only if fence, token and key are as given."""
_SUCCEED = """
UPDATE holdfast_job SET state = 'succeeded', attempt = ended.column1, quarantined = 0, crashes = 0, cancel = 0,
    result = ended.column2, error = NULL, traceback = NULL, finished_at = ?, expires_at = ?, settled = ended.column3
FROM (VALUES {rows}) AS ended
WHERE seq = ended.column4 AND id = ended.column5 AND fence = ended.column6 AND token = ended.column7
    AND state = 'running' AND key IS NULL
"""
SUCCEED = {count: _SUCCEED.format(rows=", ".join(["(?, ?, ?, ?, ?, ?, ?)"] * count)) for count in (1, SOME, MANY)}
"""Settle plain successes, all at one time and kept until one time, under the same conditions as END."""
END_AND_REMOVE = f"DELETE FROM holdfast_job WHERE {_CLAIMED}"
"""Settle a claim for good with a retention of 0."""
CLAIMED = f"""
SELECT {JOB} FROM holdfast_job
WHERE id = ? AND max(min(CAST(fence AS INTEGER), {LARGE}), -{LARGE}) = ?
    AND CAST(token AS INTEGER) = ? AND state = 'running'
"""
SETTLED = "SELECT settled FROM holdfast_job WHERE id = ?"
HEARTBEAT_OF = "SELECT CAST(heartbeat AS INTEGER) FROM holdfast_holder WHERE id = ?"
CHANGING = (
    "state", "run_at", "attempt", "reset_count", "holder", "pid", "quarantined", "crashes", "cancel", "started_at",
    "finished_at", "expires_at", "result", "error", "traceback", "progress", "checkpoint", "meta", "history",
    "waiting_for", "extra", "saves", "changed_at",
)  # fmt: skip
"""The columns that change after the insert, except the ones that only a claim sets."""
SAVE = f"""
UPDATE holdfast_job SET {", ".join(f"{name} = ?" for name in CHANGING)}, settled = coalesce(?, settled) WHERE seq = ?
"""
SET_PAYLOAD = "UPDATE holdfast_job SET payload = ? WHERE seq = ?"
SET_TASK = "UPDATE holdfast_job SET task = ? WHERE seq = ?"
SET_PLACE = "UPDATE holdfast_job SET queue = ?, priority = ? WHERE seq = ?"
REMOVE_PAYLOAD = "DELETE FROM holdfast_payload WHERE seq = ?"
REMOVE = "DELETE FROM holdfast_job WHERE seq = ?"

# -- output

LAST_OUTPUT = """
SELECT position, fence, at, length(data) FROM holdfast_output WHERE seq = ? AND stream = ?
ORDER BY position DESC LIMIT 1
"""
APPEND_OUTPUT = "INSERT INTO holdfast_output (seq, stream, position, fence, at, data) VALUES (?, ?, ?, ?, ?, ?)"
TRIM_OUTPUT = """
DELETE FROM holdfast_output WHERE seq = ? AND stream = ? AND position < ? AND position + length(data) <= ?
"""
"""Remove the pieces of a job that end before a position (given twice)."""
OUTPUT = """
SELECT position, fence, data FROM holdfast_output AS piece
WHERE seq = ? AND stream = ? AND position + length(data) > ? AND position >= coalesce(
    (SELECT max(position) FROM holdfast_output AS first
        WHERE first.seq = ? AND first.stream = ? AND first.position <= ?), 0)
ORDER BY position
"""
"""A job's pieces of its output or stream that end after a position (all given twice)."""
SEQ = "SELECT seq FROM holdfast_job WHERE id = ?"

# -- holders

HEARTBEAT = """
INSERT INTO holdfast_holder (id, about, heartbeat, renewed_at, expires, boot_id, seen_at) VALUES (?, ?, 1, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET
    about = excluded.about, heartbeat = heartbeat + 1, renewed_at = excluded.renewed_at, expires = excluded.expires,
    boot_id = excluded.boot_id, seen_at = excluded.seen_at
RETURNING heartbeat
"""
CLAIMS_OF = """
SELECT id, seq, CAST(fence AS INTEGER), CAST(token AS INTEGER), cancel FROM holdfast_job INDEXED BY holdfast_running
WHERE holder = ? AND state = 'running' ORDER BY seq
"""
COUNT_REQUEST = "UPDATE holdfast_holder SET requests = requests + 1 WHERE id = ?"
LEAVE = "UPDATE holdfast_holder SET expires = ?, boot_id = ? WHERE id = ?"
_HOLDS_NOTHING = """
NOT EXISTS (SELECT 1 FROM holdfast_job AS claimed INDEXED BY holdfast_running
    WHERE claimed.holder = holdfast_holder.id AND claimed.state = 'running')
"""
FORGET_HOLDER = f"DELETE FROM holdfast_holder WHERE id = ? AND {_HOLDS_NOTHING}"
HOLDERS = """
SELECT about, CAST(heartbeat AS INTEGER), CAST(renewed_at AS INTEGER), CAST(expires AS INTEGER), boot_id,
    CAST(seen_at AS INTEGER), id
FROM holdfast_holder ORDER BY rowid
"""
RUNNING_BY_HOLDER = """
SELECT holder, id FROM holdfast_job INDEXED BY holdfast_running WHERE state = 'running' ORDER BY holder, seq
"""
_LEASES = """
FROM holdfast_job INDEXED BY holdfast_running
LEFT JOIN (
    SELECT id AS holder_id, CAST(heartbeat AS INTEGER) AS heartbeat, CAST(expires AS INTEGER) AS expires, boot_id
    FROM holdfast_holder
) ON holder_id = holder
WHERE state = 'running' AND holder IS NOT NULL
"""
LOST = f"SELECT {JOB}, coalesce(heartbeat, 0) {_LEASES} AND (expires IS NULL OR expires <= ? OR boot_id <> ?) LIMIT ?"
"""Claims whose holder's lease has expired, is of an earlier boot, or cannot be decoded."""
LOST_OF = f"SELECT {JOB}, coalesce(heartbeat, 0) {_LEASES} AND holder = ? LIMIT ?"
"""All claims of one holder."""

# -- retention

_PAST = "FROM holdfast_job INDEXED BY holdfast_expiry WHERE expires_at <= ?"
_FORGOTTEN = "FROM holdfast_key INDEXED BY holdfast_key_expiry WHERE expires_at <= ?"
_GONE = f"FROM holdfast_holder WHERE (CAST(expires AS INTEGER) <= ? OR boot_id <> ?) AND {_HOLDS_NOTHING}"
_OLD_MINUTES = "FROM holdfast_minute WHERE at < ?"
_IDLE = f"""
FROM holdfast_limiter INDEXED BY holdfast_idle WHERE max(tat, rest_until, finish) < ?
    AND NOT EXISTS (SELECT 1 {_DEFERRED.format(limit_key=f"'{LIMIT_PREFIX}' || holdfast_limiter.limit_key")})
"""
ANYTHING_TO_TIDY = f"""
SELECT EXISTS (SELECT 1 {_PAST}) OR EXISTS (SELECT 1 {_FORGOTTEN}) OR EXISTS (SELECT 1 {_GONE})
    OR EXISTS (SELECT 1 {_OLD_MINUTES}) OR EXISTS (SELECT 1 {_IDLE})
"""
TIDY_JOBS = f"""
DELETE FROM holdfast_job WHERE seq IN (SELECT seq {_PAST} ORDER BY expires_at LIMIT ?) RETURNING queue, state
"""
TIDY_KEYS = f"DELETE FROM holdfast_key WHERE rowid IN (SELECT rowid {_FORGOTTEN} ORDER BY expires_at LIMIT ?)"
TIDY_MINUTES = f"DELETE {_OLD_MINUTES}"
TIDY_LIMITERS = f"DELETE FROM holdfast_limiter WHERE limit_key IN (SELECT limit_key {_IDLE})"
TIDY_HOLDERS = f"DELETE FROM holdfast_holder WHERE rowid IN (SELECT rowid {_GONE} LIMIT ?)"

# -- observe

GET = f"SELECT {JOB} FROM holdfast_job WHERE id = ?"
GET_MANY = f"SELECT {JOB} FROM holdfast_job WHERE id IN (SELECT value FROM json_each(?))"
GET_BY_SEQ = f"SELECT {JOB} FROM holdfast_job WHERE seq = ?"
MEND = "UPDATE holdfast_job SET id = ?, attempt = ?, fence = ? WHERE seq = ?"
"""Replace the damaged values of a job by the values that were read for them, so that it can be claimed and settled."""
FIND = f"SELECT {JOB} FROM holdfast_job WHERE {{where}} ORDER BY seq DESC LIMIT ?"
FIND_INDEXED = f"""
SELECT {JOB} FROM holdfast_job WHERE seq IN (
    SELECT seq FROM holdfast_job INDEXED BY {{index}} WHERE {{where}} ORDER BY seq DESC LIMIT ?
) ORDER BY seq DESC
"""
"""Where the index has another order, numbers are sorted, not jobs."""
LAST_OF = "SELECT seq FROM holdfast_job {index} WHERE {where} ORDER BY seq DESC LIMIT 1 OFFSET ?"
HAS_TAG = """
EXISTS (SELECT 1 FROM json_each(CASE WHEN json_valid(tags) THEN tags END) AS tag WHERE tag.value = ?)
"""
STATS = """
SELECT queue, 'queued', count(*), CAST(min(run_at) AS INTEGER) FROM holdfast_job INDEXED BY holdfast_ready
    WHERE state = 'queued' GROUP BY queue
UNION ALL SELECT queue, 'running', count(*), NULL FROM holdfast_job INDEXED BY holdfast_running
    WHERE state = 'running' GROUP BY queue
UNION ALL SELECT queue, 'blocked', count(*), NULL FROM holdfast_job INDEXED BY holdfast_blocked
    WHERE state = 'blocked' GROUP BY queue
UNION ALL SELECT queue, state, count, NULL FROM holdfast_ended WHERE count > 0
"""
"""Every queue and state with its number of jobs, and when the oldest queued one was due; without those of DUE_STATS.
Reads no ended job."""
DUE_STATS = """
SELECT queue, sum(state = 'scheduled'), sum(state = 'failed') FROM holdfast_job INDEXED BY holdfast_due
WHERE state IN ('scheduled', 'failed') GROUP BY queue
"""
"""The jobs of each queue that become ready at a time. Grouped by state, they would be sorted."""
ADD_ENDED = """
INSERT INTO holdfast_ended (queue, state, count) VALUES (?, ?, ?)
ON CONFLICT (queue, state) DO UPDATE SET count = count + excluded.count
"""
RECORDS = "SELECT name, CAST(value AS BLOB), CAST(version AS INTEGER) FROM holdfast_record WHERE kind = ?"
RECORD_VERSION = "SELECT CAST(version AS INTEGER) FROM holdfast_record WHERE kind = ? AND name = ?"
LAST_RECORD = "SELECT count(*), max(CAST(version AS INTEGER)) FROM holdfast_record WHERE kind = ?"
PUT_RECORD = "INSERT OR REPLACE INTO holdfast_record (kind, name, value) VALUES (?, ?, ?)"
REMOVE_RECORD = "DELETE FROM holdfast_record WHERE kind = ? AND name = ?"

# -- transitions and minute statistics

WATCHED = "SELECT CAST(until AS INTEGER) FROM holdfast_watch"
WATCH = "UPDATE holdfast_watch SET until = ?"
LAST_TRANSITION = "SELECT max(upto) FROM holdfast_transition"
FIRST_TRANSITION = """
SELECT upto - CASE WHEN json_valid(changes) THEN json_array_length(changes) ELSE 0 END
FROM holdfast_transition ORDER BY upto LIMIT 1
"""
"""The earliest cursor from which all transitions are still there."""
PUT_TRANSITIONS = "INSERT INTO holdfast_transition (upto, at, changes) VALUES (?, ?, ?)"
TRIM_TRANSITIONS = "DELETE FROM holdfast_transition WHERE upto <= ?"
TRANSITIONS = "SELECT upto, CAST(at AS INTEGER), changes FROM holdfast_transition WHERE upto > ? ORDER BY upto"


def _letter(duration: str, low: int = 0, high: int = BUCKETS - 1) -> str:
    """An expression for the letter of a duration's bucket, by bisection."""
    if low == high:
        return f"'{LETTERS[low]}'"
    middle = (low + high) // 2
    lower, upper = _letter(duration, low, middle), _letter(duration, middle + 1, high)
    return f"CASE WHEN {duration} < {BOUNDS[middle]} THEN {lower} ELSE {upper} END"


TIMES = f"""
SELECT queue, task, count(*), sum(waited), sum(ran), group_concat({_letter("waited")}, ''),
    group_concat({_letter("ran")}, ''),
    json_group_array(CAST(limit_key AS TEXT)) FILTER (WHERE limit_key IS NOT NULL)
FROM (
    SELECT queue, task, limit_key, max(0, coalesce(started_at, ?) - run_at) AS waited,
        max(0, ? - coalesce(started_at, ?)) AS ran
    FROM json_each(?) CROSS JOIN holdfast_job ON seq = value LIMIT -1  -- LIMIT: the durations are computed once
) GROUP BY queue, task
"""
"""How long claims that end now (the time, given three times) have waited and run, by queue and task: the sums, and
the bucket of each as a letter; and their limit keys."""
END_HANDLED = "DELETE FROM holdfast_record WHERE kind = 'ended' AND name = ? AND CAST(value AS BLOB) = X'7B7D'"
"""Remove the record of an end, unless something was added to `{}`."""
RECORD_ENDED = "INSERT OR REPLACE INTO holdfast_record (kind, name, value) VALUES ('ended', ?, ?)"
_SUMS = "CAST(count AS INTEGER), CAST(waited AS INTEGER), CAST(ran AS INTEGER), waits, runs"
MINUTE = f"SELECT {_SUMS} FROM holdfast_minute WHERE at = ? AND queue = ? AND task = ? AND outcome = ?"
PUT_MINUTE = "INSERT OR REPLACE INTO holdfast_minute VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
MINUTES = f"""
SELECT CAST(at AS INTEGER), queue, task, outcome, {_SUMS}
FROM holdfast_minute WHERE at >= ? ORDER BY at, queue, task, outcome
"""

# -- notifications

DATA_VERSION = "PRAGMA data_version"
"""Changes whenever another connection commits."""
NEXT = f"SELECT ({NEXT_DUE}), ({NEXT_OPENING})"
"""When the next job of a queue is due, and when the next limiter opens."""
REQUESTS = "SELECT requests, 0 FROM holdfast_holder WHERE id = ?"
NOTED = """
SELECT (SELECT max(position) FROM holdfast_output AS o WHERE o.seq = j.seq AND o.stream = 1), progress
FROM holdfast_job AS j WHERE id = ?
"""
"""What a job has written to its stream, and its progress."""
ENDED = f"SELECT state IN ({_FINAL}) FROM holdfast_job WHERE id = ?"
ANY_READY = """
SELECT EXISTS (SELECT 1 FROM holdfast_job INDEXED BY holdfast_ready WHERE queue = ? AND state = 'queued')
    AND NOT EXISTS (SELECT 1 FROM holdfast_record WHERE kind = 'pause' AND name = ?)
"""
