"""The list of reasons for which tests may be skipped."""

from collections import Counter

from support.skips import MAX_SKIPS, wrong


def test_listed_reasons_are_fine():
    assert (
        wrong(Counter({"redis has no wall_jumps": 4, "no Azurite: python tests/support/fetch.py fetches it": 77})) == []
    )


def test_a_reason_that_is_not_listed_fails_the_run():
    [line] = wrong(Counter({"flaky": 2}))
    assert line.startswith("2 skipped for a reason")


def test_too_many_skips_fail_the_run():
    [line] = wrong(Counter({"bucket has no reboots": MAX_SKIPS + 1}))
    assert line.startswith(f"{MAX_SKIPS + 1} skipped, {MAX_SKIPS} at most")
