"""A program that claims by hand, keeps its lease, and settles as its standard input tells it, word by word per job."""

from __future__ import annotations

import argparse
import os
import sys

from holdfast import Holdfast, HoldfastError

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
        # One call takes all of them, or none: they become free together.
        claims = until(lambda: sync.claim(limit=given.limit, lease=given.lease), "there is something to claim")
        with claims[0].kept_alive():
            for claim in claims:
                journal.write("claimed", claim.job.id, fence=claim.fence)
            words = sys.stdin.readline().split()
        for claim, word in zip(claims, words, strict=True):
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
