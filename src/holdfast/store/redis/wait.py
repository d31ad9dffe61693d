"""Waits until a write is on the server's disk (durability=fsync) or its replicas (durability=replicated)."""

from __future__ import annotations

from ...core.errors import OutcomeUnknown
from .address import Address
from .resp import Reply, ReplyError


class Wait:
    """The wait command after one write, and the check of its answer.

    `replicated` waits for all replicas that could be promoted, not for one: during a failover, the replaced primary
    still has the others.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self._limit = max(1, round(address.timeout * 500))  # half of what a call may take, in milliseconds
        self._wanted = 1

    def command(self, replicas: int) -> tuple[str | int, ...]:
        if self._address.durability == "fsync":
            return "WAITAOF", 1, 0, self._limit
        self._wanted = replicas
        return "WAIT", replicas, self._limit

    def check(self, answer: Reply) -> None:
        """Raise OutcomeUnknown if the write may still be lost."""
        where, asked = self._address, f"durability={self._address.durability}"
        if isinstance(answer, ReplyError):
            raise OutcomeUnknown(
                f"{where}: waiting for {asked} failed ({answer}); the write was made, but a crash or failover may lose"
                " it. Check the server"
            )
        done: int = answer if isinstance(answer, int) else answer[0]
        if done < self._wanted:
            reached = f" ({done} of {self._wanted} replicas have it)" if self._wanted > 1 else ""
            raise OutcomeUnknown(
                f"{where}: {asked} was not reached within {where.timeout / 2:g} s{reached}; the write was made, but a"
                " crash or failover may lose it. Check the disk and the replicas of the server"
            )
