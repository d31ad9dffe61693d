"""Tools for tests of Holdfast, of its stores and of programs that use it.

For programs: `inline` runs jobs where they are enqueued, `on_memory` gives an app a memory store with a manual clock,
and `plugin` has a pytest fixture for it.
For stores: `build` constructs the values of the store protocol, `verbs` runs one operation at a time, `conformance` and
`machine` check a store against the protocol. The last two need pytest and Hypothesis.
"""

from .clock import ManualClock
from .inline import inline
from .memory import Bench, on_memory

__all__ = ["Bench", "ManualClock", "inline", "on_memory"]
