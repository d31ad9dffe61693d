"""The context of a job passes its durable steps on to the object that does them."""

import inspect

import pytest

from holdfast import Context
from holdfast.tasks.durable_steps import DurableSteps


@pytest.mark.parametrize("name", ["checkpoint", "sleep", "step", "wait_for"])
def test_a_method_of_the_context_takes_what_the_steps_take(name):
    assert inspect.signature(getattr(Context, name)) == inspect.signature(getattr(DurableSteps, name))
    assert getattr(Context, name).__doc__


def test_the_context_inherits_nothing():
    assert Context.__bases__ == (object,)
