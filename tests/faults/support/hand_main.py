"""A program that claims by hand, keeps its leases, and then settles as its standard input says: `job=word …`."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import ExitStack

from holdfast import Holdfast, HoldfastError
from holdfast.sync.tasks import SyncClaim

from .journal import Journal
from .processes import end_with_parent
from .until import until


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--journal", required=True)
    parser.add_argument("--lease", type=float, required=True)
    parser.add_argument("--limit", type=int, required=True)
    given = parser.parse_args()
    end_with_parent()
    journal = Journal(given.journal)
    with Holdfast(given.url).sync as sync:
        claims: list[SyncClaim] = []
        with ExitStack() as heartbeats:
            while len(claims) < given.limit:
                # Jobs that their process has lost come one by one, others together.
                left = given.limit - len(claims)
                some = until(lambda left=left: sync.claim(limit=left, lease=given.lease), "there is a job")
                heartbeats.enter_context(some[0].kept_alive())
                for claim in some:
                    journal.write("claimed", claim.job.id, fence=claim.fence)
                claims += some
            words = dict(pair.split("=") for pair in sys.stdin.readline().split())
        for claim in claims:
            word = words[claim.job.id]
            about = f"{word} by {os.getpid()} under fence {claim.fence}"
            say = {
                "complete": lambda claim=claim, about=about: claim.complete(about),
                "fail": lambda claim=claim, about=about: claim.fail(about),
                "extend": claim.extend,
                "release": claim.release,
            }
            try:
                say[word]()
            except HoldfastError as error:
                journal.write("answer", claim.job.id, word=word, answer=type(error).__name__, fence=claim.fence)
            else:
                journal.write("answer", claim.job.id, word=word, answer="written", fence=claim.fence)


if __name__ == "__main__":
    main()
