"""The order in which a worker asks its queues."""

from collections import Counter

from holdfast.worker.queue_rotation import QueueRotation


def firsts(weights, count):
    rotation = QueueRotation(weights)
    return [rotation.next()[0] for _ in range(count)]


def test_every_queue_is_asked_each_time():
    assert all(sorted(order) == ["a", "b", "c"] for order in [QueueRotation({"a": 1, "b": 5, "c": 2}).next()])


def test_equal_queues_are_served_round_robin():
    assert Counter(firsts({"a": 1, "b": 1, "c": 1}, 9)) == {"a": 3, "b": 3, "c": 3}
    assert len(set(firsts({"a": 1, "b": 1, "c": 1}, 3))) == 3


def test_weights_are_shares_evenly_spread():
    order = firsts({"mail": 5, "default": 1}, 12)
    assert Counter(order) == {"mail": 10, "default": 2}
    assert order.index("default") < 6


def test_a_queue_that_is_added_twice_is_served_once_per_round():
    rotation = QueueRotation({"a": 1})
    for _ in range(2):
        rotation.add("b")
        rotation.add("a")
    assert Counter(rotation.next()[0] for _ in range(6)) == {"a": 3, "b": 3}
