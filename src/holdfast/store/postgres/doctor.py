"""The checks of `holdfast doctor` for a Postgres store: dead rows, old snapshots, missing indexes, lost rows."""

from __future__ import annotations

from typing import Any

from ..protocol import Finding
from . import schema, sql
from .address import Address

OLD_SNAPSHOT = 300.0
"""Seconds from which an open transaction is reported."""
MANY_DEAD = 100_000
"""Dead rows from which a table is reported."""

INDEXES = (
    "job_pkey", "job_id", "job_ready", "job_due", "job_running", "ended_pkey", "ended_id", "ended_expiry",
    "ended_unsuccessful", "key_pkey", "key_expiry", "holder_pkey", "record_pkey", "generation_pkey", "floor_pkey",
    "output_pkey", "migration_pkey", "transition_pkey", "transition_xid", "minute_at", "minute_part", "job_waiting_for",
    "ended_waiting_for", "job_delayed", "job_deferred", "job_limit_key", "limiter_pkey", "limiter_opens",
    "limiter_idle", "notice_gen", "notice_rest", "share_pkey", "share_idle", "share_part_limit_key",
)  # fmt: skip


async def examine(connection: Any, address: Address) -> list[Finding]:
    """Run all checks; the findings in the order in which they are shown."""
    version = await schema.version(connection, address.schema)
    if version != schema.LATEST:
        advice = "run `holdfast migrate`" if version < schema.LATEST else "upgrade Holdfast"
        return [Finding(False, f"schema version {version}; this Holdfast uses {schema.LATEST}", advice)]
    return [
        Finding(True, f"schema version {version}"),
        *await _server(connection),
        *await _isolation(connection, address),
        *_hints(address),
        await _indexes(connection, address.schema),
        *await _dead_rows(connection, address.schema),
        *await _old_snapshots(connection),
        *await _strays(connection, address.schema),
    ]


async def _server(connection: Any) -> list[Finding]:
    findings: list[Finding] = []
    durable = await connection.fetchval("SELECT current_setting('synchronous_commit')")
    fsync = await connection.fetchval("SELECT current_setting('fsync')")
    findings.append(
        Finding(
            durable not in ("off", "local") and fsync == "on",
            f"synchronous_commit is {durable}, fsync is {fsync}",
            "a crash may lose acknowledged jobs: set synchronous_commit and fsync to on",
        )
    )
    if await connection.fetchval("SELECT pg_is_in_recovery()"):
        findings.append(
            Finding(False, "this server is a replica", "name the primary in the URL: a replica accepts no writes")
        )
    if await connection.fetchval("SELECT current_setting('autovacuum')") != "on":
        findings.append(Finding(False, "autovacuum is off", "set autovacuum to on, or dead rows are never removed"))
    return findings


async def _isolation(connection: Any, address: Address) -> list[Finding]:
    """The default isolation matters only with shared connections; else the store sets its own."""
    default = await connection.fetchval("SELECT current_setting('default_transaction_isolation')")
    if not address.shared or default == "read committed":
        return []
    advice = "jobs with limits cannot be claimed: run ALTER ROLE … SET default_transaction_isolation = 'read committed'"
    return [Finding(False, f"with pgbouncer's transaction pooling, the isolation level is {default}", advice)]


def _hints(address: Address) -> list[Finding]:
    if not address.shared or address.signal is not None:
        return []
    what = "with pgbouncer's transaction pooling no notifications arrive; jobs are found by polling alone"
    return [Finding(True, f"{what} (?signal=redis://… sends notifications through Redis)")]


async def _indexes(connection: Any, name: str) -> Finding:
    rows = await connection.fetch(
        "SELECT c.relname FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid"
        " JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND i.indisvalid AND i.indisready",
        name,
    )
    missing = sorted(set(INDEXES) - {row[0] for row in rows})
    if not missing:
        return Finding(True, f"all {len(INDEXES)} indexes exist and are valid")
    advice = "drop the invalid ones, and create all of them with the statements of `holdfast migrate --dump-sql`"
    return Finding(False, f"missing or invalid indexes: {', '.join(missing)}", advice)


async def _dead_rows(connection: Any, name: str) -> list[Finding]:
    rows = await connection.fetch(
        "SELECT relname, n_live_tup, n_dead_tup, pg_total_relation_size(relid), last_autovacuum"
        " FROM pg_stat_user_tables WHERE schemaname = $1 AND relname IN ('job', 'ended', 'key') ORDER BY relname",
        name,
    )
    return [
        Finding(
            dead < MANY_DEAD or dead < live,
            f"table {table}: {live} rows, {dead} dead, {size // 2**20} MiB, last vacuumed {when or 'never'}",
            "autovacuum is too slow, or an old snapshot blocks it: check its settings and open transactions",
        )
        for table, live, dead, size, when in rows
    ]


async def _old_snapshots(connection: Any) -> list[Finding]:
    rows = await connection.fetch(
        "SELECT pid, coalesce(application_name, ''), state, extract(epoch FROM clock_timestamp() - xact_start)::float8"
        " FROM pg_stat_activity WHERE xact_start < clock_timestamp() - make_interval(secs => $1)"
        " AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL) AND backend_type = 'client backend'"
        " ORDER BY xact_start LIMIT 5",
        OLD_SNAPSHOT,
    )
    findings = [
        Finding(
            False,
            f"backend {pid} ({application or 'unnamed'}, {state}) has had a transaction open for {age:.0f} s",
            f"end it, such as by SELECT pg_terminate_backend({pid}): until then dead rows stay, and the tables grow",
        )
        for pid, application, state, age in rows
    ]
    prepared = await connection.fetchval("SELECT count(*) FROM pg_prepared_xacts")
    if prepared:
        findings.append(
            Finding(
                False,
                f"{prepared} prepared transactions are open",
                "end those that are not in use with COMMIT PREPARED or ROLLBACK PREPARED (see pg_prepared_xacts)",
            )
        )
    slots = await connection.fetch(
        "SELECT slot_name FROM pg_replication_slots WHERE NOT active AND (xmin IS NOT NULL OR catalog_xmin IS NOT NULL)"
    )
    findings += [
        Finding(
            False,
            f"replication slot {slot} is inactive and keeps an old snapshot",
            f"if nothing uses it: SELECT pg_drop_replication_slot('{slot}')",
        )
        for (slot,) in slots
    ]
    return findings or [Finding(True, f"no transaction is older than {OLD_SNAPSHOT:.0f} s")]


async def _strays(connection: Any, name: str) -> list[Finding]:
    strays = await connection.fetchval(sql.for_schema(sql.STRAYS, name))
    if not strays:
        return [Finding(True, "claims and recovery can find every unfinished job")]
    return [
        Finding(
            False,
            f"claims and recovery cannot find {strays} unfinished jobs",
            "if no other program has edited the tables, report this as a bug of Holdfast",
        )
    ]
