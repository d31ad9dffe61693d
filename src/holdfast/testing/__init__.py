"""What tests of Holdfast, of its stores and of programs that use it are made of.

For programs: `inline` runs jobs where they are enqueued, `on_memory` re-points an app at a memory store with a clock
that jumps, and `plugin` makes a pytest fixture of it.
For stores: `build` makes the values of the store protocol in few words, `verbs` does one operation at a time,
`conformance` and `machine` hold a store to the contract. The last two need pytest and Hypothesis.
"""

from .clock import ManualClock
from .inline import inline
from .memory import Bench, on_memory

__all__ = ["Bench", "ManualClock", "inline", "on_memory"]
