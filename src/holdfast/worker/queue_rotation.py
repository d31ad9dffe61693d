"""Which queue is asked first: each in its turn, by its weight, so that none starves."""

from __future__ import annotations

from collections.abc import Mapping


class QueueRotation:
    """Smooth weighted rotation: with weights 5 and 1, the first comes first in five asks of six, evenly spread."""

    def __init__(self, weights: Mapping[str, int]) -> None:
        self._weights = dict(weights)
        self._total = sum(self._weights.values())
        self._credit = dict.fromkeys(self._weights, 0)

    def add(self, name: str) -> None:
        """One more queue, of weight 1; nothing where it has its turn already."""
        if name not in self._weights:
            self._weights[name], self._credit[name] = 1, 0
            self._total += 1

    def next(self) -> tuple[str, ...]:
        """The queues in the order of the next ask."""
        credit = self._credit
        for name, weight in self._weights.items():
            credit[name] += weight
        order = sorted(credit, key=lambda name: -credit[name])
        credit[order[0]] -= self._total
        return tuple(order)
