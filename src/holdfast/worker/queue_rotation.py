"""Queue rotation: the order of queues in each claim, by weight, so that no queue starves."""

from __future__ import annotations

from collections.abc import Mapping


class QueueRotation:
    """Smooth weighted round-robin: with weights 5 and 1, the first queue leads five claims of six, evenly spread."""

    def __init__(self, weights: Mapping[str, int]) -> None:
        self._weights = dict(weights)
        self._total = sum(self._weights.values())
        self._credit = dict.fromkeys(self._weights, 0)

    def add(self, name: str) -> None:
        """Add a queue of weight 1, if it is not in the rotation."""
        if name not in self._weights:
            self._weights[name], self._credit[name] = 1, 0
            self._total += 1

    def next(self) -> tuple[str, ...]:
        """The queues in the order of the next claim."""
        credit = self._credit
        for name, weight in self._weights.items():
            credit[name] += weight
        order = sorted(credit, key=lambda name: -credit[name])
        credit[order[0]] -= self._total
        return tuple(order)
