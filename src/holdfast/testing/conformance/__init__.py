"""The suite that every store must pass, by topic. A store uses it in one test module:

    class MyHarness(ManualTimeHarness):            # or RealTimeHarness, for a server with its own clock
        def connect(self) -> Store:
            return MyStore(self.folder / "jobs", clock=self.clock)

    TestMyStore = conformance_suite(MyHarness)
    TestMyStoreBesideTheReference = state_machine(MyHarness)   # from holdfast.testing.machine

Needs pytest and pytest-asyncio.
"""

from __future__ import annotations

from importlib import import_module

import pytest

from .harness import HARNESS_FEATURES, Harness, ManualTimeHarness, RealTimeHarness

TOPICS = (
    "enqueue",
    "keys",
    "claim",
    "order",
    "due",
    "quarantine",
    "settle",
    "final_states",
    "waiting_again",
    "fences",
    "completion",
    "notes",
    "updates",
    "output",
    "stream",
    "leases",
    "sweeping",
    "changes",
    "edits",
    "retention",
    "reading",
    "overview",
    "transitions",
    "records",
    "pauses",
    "waiting_for",
    "unique",
    "key_owners",
    "limits",
    "waking",
    "control",
    "batches",
    "unknown_outcomes",
    "hostile_text",
    "reopening",
    "concurrency",
)

# Before the topics are imported: pytest rewrites their assertions, as in test modules.
pytest.register_assert_rewrite(*(f"{__name__}.{topic}" for topic in TOPICS))

from .topic import Topic, required_features, requires  # noqa: E402  see above


def conformance_suite(harness: type[Harness]) -> type:
    """A class of test classes, one per topic; bind it to a name that begins with Test.

    Tests that need what the harness cannot do, or what it says its store `lacks`, are left out.
    """
    lacking = (HARNESS_FEATURES - harness.features) | harness.lacks
    topics: dict[str, type[Topic]] = {}
    for name in TOPICS:
        for value in list(vars(import_module(f".{name}", __name__)).values()):
            if isinstance(value, type) and issubclass(value, Topic) and value is not Topic:
                left_out = {test: None for test, made in vars(value).items() if lacking & required_features(made)}
                topics[value.__name__] = type(value.__name__, (value,), {"harness_class": harness, **left_out})
    return type(f"Test{harness.__name__}", (), dict(topics))


__all__ = ["Harness", "ManualTimeHarness", "RealTimeHarness", "Topic", "conformance_suite", "requires"]
