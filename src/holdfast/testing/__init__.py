"""What tests of Holdfast, of its stores and of programs that use it are made of.

`clock` is a clock that jumps, `build` makes the values of the store protocol in few words, `verbs` does one operation
at a time, `conformance` and `machine` hold a store to the contract. The last two need pytest and Hypothesis.
"""

from .clock import ManualClock

__all__ = ["ManualClock"]
