"""A blocking program that uses its app, forks, and goes on using it on both sides. `--how` says what is tried."""

from __future__ import annotations

import argparse
import faulthandler
import multiprocessing
import os
import sys
import threading
import traceback

from .journal import Journal
from .processes import end_with_parent
from .tasks import build


class Forks:
    def __init__(self, url: str, journal: Journal) -> None:
        self.journal = journal
        self.app = build(url, journal)
        self._watched = False

    def enqueue(self, who: str) -> None:
        handle = self.app.sync.enqueue("work", 4)
        self.journal.write("acked", handle.id, who=who)

    def fork(self, inside) -> int:
        """Run `inside` in a forked child; the child's pid."""
        pid = os.fork()
        if pid:
            return pid
        if not self._watched:  # once: the handler itself does not survive a second fork
            self._watched = True
            faulthandler.dump_traceback_later(10)
        try:
            inside()
        except BaseException:  # noqa: BLE001  # a forked child must never return into the parent's code
            traceback.print_exc()
            os._exit(1)
        os._exit(0)

    # -- what is tried

    def unique(self) -> None:
        self.enqueue("parent before")
        child = self.fork(lambda: [self.enqueue("child") for _ in range(3)])
        self.enqueue("parent after")
        finish([child])
        self.enqueue("parent at last")

    def generations(self) -> None:
        def child() -> None:
            self.enqueue("child")
            finish([self.fork(lambda: self.enqueue("grandchild"))])
            self.enqueue("child after")

        self.enqueue("parent before")
        finish([self.fork(child)])
        self.enqueue("parent after")

    def multiprocessing(self) -> None:
        self.enqueue("parent before")
        children = [multiprocessing.get_context("fork").Process(target=self.enqueue, args=["child"]) for _ in range(3)]
        for child in children:
            child.start()
        self.enqueue("parent after")
        for child in children:
            child.join()
            assert child.exitcode == 0, child

    def busy(self) -> None:
        """Fork while other threads are in the middle of writing and reading."""
        # Open by now: a fork while another thread is inside OpenSSL, making its first connection, can hang for ever.
        self.enqueue("parent before")
        stop = threading.Event()

        def write() -> None:
            while not stop.is_set():
                self.enqueue("parent thread")

        def read() -> None:
            while not stop.is_set():
                self.app.sync.stats()

        threads = [threading.Thread(target=target) for target in (write, write, read)]
        for thread in threads:
            thread.start()
        for _ in range(20):
            finish([self.fork(lambda: self.enqueue("child"))])
        stop.set()
        for thread in threads:
            thread.join()

    def outliving(self) -> None:
        """The parent closes its app, and is then the last but for the child, which goes on enqueueing."""
        self.enqueue("parent before")
        ready, go = os.pipe(), os.pipe()

        def child() -> None:
            self.enqueue("child before")
            os.write(ready[1], b".")
            os.read(go[0], 1)
            self.enqueue("child after")
            # It dies without closing, as a killed process would.

        pid = self.fork(child)
        os.read(ready[0], 1)
        self.app.sync.close()
        os.write(go[1], b".")
        finish([pid])


def finish(children: list[int]) -> None:
    for child in children:
        _, status = os.waitpid(child, 0)
        assert status == 0, f"child {child} ended with status {status}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--journal", required=True)
    parser.add_argument("--how", required=True)
    given = parser.parse_args()
    end_with_parent()
    forks = Forks(given.url, Journal(given.journal))
    getattr(forks, given.how)()
    forks.journal.write("done")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
