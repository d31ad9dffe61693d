"""Tools for tests of Holdfast, of its stores and of programs that use it.

For programs: `inline` runs jobs where they are enqueued, `on_memory` gives an app a memory store with a manual clock,
`assert_enqueued` finds jobs by their arguments, `override` replaces a dependency, and `plugin` has pytest fixtures.
For stores: `build` constructs the values of the store protocol, `verbs` runs one operation at a time, `conformance` and
`machine` check a store against the protocol. The last two need pytest and Hypothesis.
"""

from .assertions import assert_enqueued, assert_not_enqueued
from .clock import ManualClock
from .inline import inline
from .memory import Bench, on_memory
from .override import override

__all__ = ["Bench", "ManualClock", "assert_enqueued", "assert_not_enqueued", "inline", "on_memory", "override"]
