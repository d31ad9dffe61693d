"""The list of reasons for which tests may be skipped, and the sum over the parts of `make test-all`."""

from collections import Counter

from support.skips import MAX_SKIPS, record, summary, wrong

ON_DEMAND = "takes minutes: set HOLDFAST_JOBS=1000000"
NO_AZURITE = "no Azurite: python tests/support/fetch.py fetches it"


def test_listed_reasons_are_fine():
    assert wrong(Counter({ON_DEMAND: 4, NO_AZURITE: 77})) == []


def test_a_reason_that_is_not_listed_fails_the_run():
    for reason in ("flaky", "redis has no transactional_completion"):
        [line] = wrong(Counter({reason: 2}))
        assert line.startswith("2 skipped for a reason")


def test_too_many_skips_fail_the_run():
    [line] = wrong(Counter({ON_DEMAND: MAX_SKIPS + 1}))
    assert line.startswith(f"{MAX_SKIPS + 1} skipped, {MAX_SKIPS} at most")


def test_the_parts_are_added_up(tmp_path):
    record("not extended", Counter({ON_DEMAND: MAX_SKIPS, NO_AZURITE: 3}), tmp_path)
    record("extended or sized", Counter({NO_AZURITE: 70}), tmp_path)
    record("", Counter({"of another run": 1}), tmp_path)
    lines, problems = summary(tmp_path)
    assert lines == [
        f"make test: {MAX_SKIPS} skipped, 3 for what is missing here",
        "extended tests: 0 skipped, 70 for what is missing here",
        f"together: {MAX_SKIPS} skipped of at most {MAX_SKIPS}",
    ]
    assert problems == []
    record("extended or sized", Counter({ON_DEMAND: 1}), tmp_path)
    [line] = summary(tmp_path)[1]
    assert line.startswith(f"{MAX_SKIPS + 1} skipped, {MAX_SKIPS} at most")
