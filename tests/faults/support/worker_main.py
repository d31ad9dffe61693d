"""One worker process: `python -m support.worker_main --url … --journal …`. SIGTERM stops it, a second one at once.

SIGUSR2 prints where its threads are.
"""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import logging
import os
import signal

from holdfast import Worker
from holdfast.observe.events import JobEvent

from .journal import Journal
from .processes import end_with_parent
from .step_tasks import die_when_suspended
from .tasks import build

EVENTS = {
    "lease_acquired": "claimed",
    "lease_lost": "refused",
    "job_succeeded": "settled",
    "job_failed": "settled",
    "job_dead": "settled",
    "job_cancelled": "settled",
    "job_released": "settled",
    "job_snoozed": "settled",
}


class JournalHandler(logging.Handler):
    """Journals what the library complains about, outages apart; the events of jobs come by another way."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(logging.WARNING)
        self._journal = journal

    def emit(self, record: logging.LogRecord) -> None:
        event = getattr(record, "event", "warning")
        if event == "warning" or event.startswith("outage"):
            self._journal.write(event.partition("_")[0], text=record.getMessage())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--journal", required=True)
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--lease", type=float, default=1.5)
    parser.add_argument("--poll", type=float, default=0.1)
    parser.add_argument("--grace", type=float, default=30.0)
    parser.add_argument("--wall-skew", type=float, default=0.0)
    given = parser.parse_args()
    end_with_parent()
    faulthandler.register(signal.SIGUSR2)
    journal = Journal(given.journal)
    logging.getLogger("holdfast").addHandler(JournalHandler(journal))
    die_when_suspended(journal)
    app = build(given.url, journal, wall_skew=given.wall_skew, lease=given.lease, poll=given.poll, grace=given.grace)

    def note(event: JobEvent) -> None:
        journal.write(EVENTS[event.name], event.job_id, about=event.name, attempt=event.attempt)

    for name in EVENTS:
        app.on(name, note)

    async def work() -> None:
        worker = Worker(app, concurrency=given.concurrency)

        def stop() -> None:
            journal.write("signalled")  # before its grace begins
            worker.stop()

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
        async with app:
            await worker.run()

    asyncio.run(work())
    # A thread whose job was given back cannot be ended: a program that shall end must not wait for it.
    os._exit(0)


if __name__ == "__main__":
    main()
