"""How much of the conformance suite a store is put through: all of it, or less where it costs much and shows little.

Every engine passes every topic, and the state machine, in every run. Another server for the same engine, or another
way to it, passes SOME topics; HOLDFAST_WHOLE=1 gives it all the rest.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

from holdfast.testing.conformance import conformance_suite
from holdfast.testing.machine import state_machine

from .sizes import size

WHOLE = bool(os.environ.get("HOLDFAST_WHOLE"))
SOME = ("TestEnqueue", "TestKeys", "TestEnds", "TestHeartbeats", "TestRecords", "TestUnknownOutcomes", "TestReopening")
"""Topics that together use every kind of call."""


def some_topics(harness, *more):
    """SOME topics of the suite, and `more`."""
    suite = conformance_suite(harness)
    topics = {name: getattr(suite, name) for name in (*SOME, *more)}
    return suite if WHOLE else type(suite.__name__, (), topics)


def beside_the_reference(harness, examples):
    """The state machine, with so many examples (in `make test` a third) unless HOLDFAST_EXAMPLES says how many.

    Its time-out is far away: Hypothesis takes an interruption for a failure, and reports another one.
    """
    case = state_machine(harness)
    if "HOLDFAST_EXAMPLES" not in os.environ:
        case.settings = settings(case.settings, max_examples=size(examples))
    return pytest.mark.sized(pytest.mark.timeout(600 + 20 * case.settings.max_examples)(case))
