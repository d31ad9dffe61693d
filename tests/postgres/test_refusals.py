"""A server or a role that can only be read: workers say so, and end."""

from __future__ import annotations

import pytest
import pytest_asyncio

from holdfast import ConfigError, Holdfast, StoreRefused, StoreUnavailable, Worker
from holdfast.store.postgres import PostgresStore
from holdfast.store.postgres.schema import LATEST
from support.terminal import terminal  # noqa: F401  # a fixture

READS = (
    "GRANT USAGE ON SCHEMA {schema} TO {role}; GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role};"
    "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} TO {role};"
)
STANDBY = "ALTER ROLE {role} SUPERUSER; ALTER ROLE {role} SET default_transaction_read_only = on;"
"""What a standby answers: every transaction there is read-only."""
KINDS = {"reader": (READS, ConfigError, 2), "standby": (STANDBY, StoreRefused, 3)}


@pytest_asyncio.fixture(params=KINDS)
async def refusing(request, server, sql, schema, store):
    """A URL whose role cannot write, its error, and its exit code."""
    rights, error, code = KINDS[request.param]
    role = f"{request.param}_{schema}"
    await sql.execute(f"CREATE ROLE {role} LOGIN; {rights.format(role=role, schema=schema)}")
    yield f"postgresql://{role}@127.0.0.1:{server.port}/postgres?schema={schema}", error, code
    await sql.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


async def test_a_worker_that_may_only_read_ends(refusing):
    url, error, _ = refusing
    async with Holdfast(url) as app:
        with pytest.raises(error):
            await Worker(app).run()


def test_the_command_says_why_once_and_exits(refusing, terminal):  # noqa: F811
    url, _, code = refusing
    said = terminal("worker", "start", "--drain", "--foreground", "--url", url, code=code)
    assert said.count("permission denied" if code == 2 else "is a standby or read-only") == 1
    assert "Traceback" not in said


async def test_a_missing_ca_file_is_named(server):
    url = f"{server.url}?sslmode=verify-full&sslrootcert=/no/such/ca.pem"
    with pytest.raises(ConfigError, match=r"sslrootcert= cannot be read: /no/such/ca\.pem: No such file"):
        await PostgresStore(url).open()


async def test_a_ca_file_without_certificates_is_a_mistake(server, tmp_path):
    (tmp_path / "odd.pem").write_text("odd")
    with pytest.raises(ConfigError, match="names a file that is not PEM"):
        await PostgresStore(f"{server.url}?sslmode=verify-full&sslrootcert={tmp_path}/odd.pem").open()


async def test_a_server_without_tls_says_so(server):
    with pytest.raises(StoreUnavailable, match="rejected SSL upgrade"):
        await PostgresStore(f"{server.url}?sslmode=require").open()


async def test_a_migration_whose_row_was_lost_is_explained(sql, schema, url, store):
    await sql.execute(f"DELETE FROM {schema}.migration WHERE version = $1", LATEST)
    with pytest.raises(ConfigError, match=rf"version {LATEST} of the schema cannot be applied .* nothing was changed"):
        await PostgresStore(url).migrate()
    await sql.execute(f"INSERT INTO {schema}.migration (version) VALUES ({LATEST})")  # as the error says
    again = PostgresStore(url)
    assert await again.migrate() == []
    await again.close()
