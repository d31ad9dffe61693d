"""A world of simulated processes: event loops that share one virtual clock, stepped one at a time by one seed.

A process is one loop or several (its heartbeat has its own, like its real thread). It can be killed between any two
steps, which is at any `await`, and is never stepped again; it can be stopped for a while, and wakes late.
"""

from __future__ import annotations

import asyncio
import warnings
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from heapq import heappop, heappush
from math import ceil
from random import Random
from typing import Any

from holdfast.core.clock import MICROS
from holdfast.testing.clock import EPOCH

NEVER = 1 << 62
MAX_STEPS = 400_000
"""Steps after which a world is given up: a process loops endlessly."""


class World:
    """Time, chance, and everybody in it."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.now = 0
        """Virtual microseconds since the beginning."""
        self.processes: list[Process] = []
        self.loops: list[Loop] = []
        self.active: list[Loop] = []
        """Loops that have something to do now."""
        self.timers: list[tuple[int, int, Loop, Handle | None]] = []
        self.running: Loop | None = None
        self.order = 0
        self.steps = 0
        self.errors: list[str] = []
        """What asyncio would have logged: an exception that nobody has fetched, a callback that raised."""

    def process(self, name: str, skew: float = 0.0) -> Process:
        made = Process(self, name, skew)
        self.processes.append(made)
        return made

    def run(self, until: float, over: Callable[[], bool] | None = None) -> bool:
        """Step until `over`; False where the virtual time (in seconds) came first."""
        chance, active, limit = self.chance.random, self.active, int(until * MICROS)
        try:
            while self.steps < MAX_STEPS and (over is None or not over()):
                if active:
                    at = 0 if len(active) == 1 else int(chance() * len(active))
                    loop = active[at]
                    if loop.wakes <= self.now:
                        self.steps += loop.step()
                        if loop.ready:
                            continue
                    else:
                        self.wake(loop)
                    loop.active = False
                    active[at] = active[-1]
                    active.pop()
                elif not self._pass_time(limit):
                    return False
            return self.steps < MAX_STEPS
        finally:
            events._set_running_loop(None)
            self.running = None

    def _pass_time(self, until: int) -> bool:
        """On to the next timer; False where it lies behind the limit."""
        timers = self.timers
        while timers:
            when, order, loop, handle = timers[0]
            if when > until:
                break
            heappop(timers)
            if handle is not None and handle.callback is None:
                continue
            self.now = max(self.now, when)
            if loop.wakes <= self.now:
                if handle is not None:
                    loop.ready.append(handle)
                if loop.ready:
                    loop.activate()
                return True
            if loop.wakes != NEVER:
                heappush(timers, (loop.wakes, order, loop, handle))
        self.now = max(self.now, until)
        return False

    def wake(self, loop: Loop) -> None:
        """Look at a loop again when it wakes."""
        if loop.wakes != NEVER:
            self.order += 1
            heappush(self.timers, (loop.wakes, self.order, loop, None))

    def bury(self) -> None:
        """Drop every task without letting it do anything that matters any more."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # what another loop was handed, and never came to begin
            self.timers.clear()
            for loop in self.loops:
                loop.ready.clear()
        for _ in range(20):
            tasks = [task for loop in self.loops for task in loop.tasks if not task.done()]
            for loop in self.loops:
                loop.tasks = []
            if not tasks:
                return
            for task in tasks:
                _close(task)


def _close(task: asyncio.Task[Any]) -> None:
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    events._set_running_loop(task.get_loop())  # else its last words would make a loop of their own
    try:
        for _ in range(20):
            try:
                task.get_coro().close()  # type: ignore[union-attr]
            except BaseException:  # noqa: BLE001  # it would rather have gone on; it will not
                continue
            return
    finally:
        events._set_running_loop(None)


class Process:
    """One simulated process: its loops, its clock, and whether it lives."""

    def __init__(self, world: World, name: str, skew: float) -> None:
        self.world = world
        self.name = name
        self.skew = skew
        self.clock = SimClock(world, skew)
        self.dead = False
        self.stopped_until = 0
        self.steps = 0
        self.dies_at_step = -1
        self.on_death: list[Callable[[], object]] = []
        self.loops: list[Loop] = []
        self.loop = Loop(self)

    def kill(self) -> bool:
        """kill -9; False if it was dead already."""
        if self.dead:
            return False
        self.dead = True
        for loop in self.loops:
            loop.wakes = NEVER
        for callback in self.on_death:
            callback()
        return True

    def stop(self, seconds: float) -> None:
        """SIGSTOP, and SIGCONT after some time; after none: SIGCONT now."""
        self.stopped_until = self.world.now + int(seconds * MICROS)
        for loop in () if self.dead else self.loops:
            loop.wakes = max(self.stopped_until, loop.blocked_until)

    def start(self, coroutine: Coroutine[Any, Any, Any], loop: Loop | None = None) -> asyncio.Task[Any]:
        """Run a coroutine in this process."""
        return (loop or self.loop).create_task(coroutine)


class SimClock:
    """A process's clocks; `skew` seconds is how far its wall clock is off."""

    def __init__(self, world: World, skew: float) -> None:
        self._world = world
        self._skew = EPOCH + int(skew * MICROS)

    def now(self) -> int:
        return self._world.now + self._skew

    def monotonic(self) -> float:
        return self._world.now / MICROS

    def boot(self) -> int:
        return self._world.now

    def boot_id(self) -> str:
        return "simulated"


class Handle:
    """A callback that waits to run: all that asyncio asks of one, and nothing else, for there are many."""

    __slots__ = ("args", "callback", "context", "time")

    def __init__(
        self, callback: Callable[..., Any], args: tuple[Any, ...], context: Context | None, time: float
    ) -> None:
        self.callback: Callable[..., Any] | None = callback
        self.args = args
        self.context = copy_context() if context is None else context
        self.time = time

    def cancel(self) -> None:
        self.callback = None
        self.args = ()

    def cancelled(self) -> bool:
        return self.callback is None

    def when(self) -> float:
        return self.time


class Loop(asyncio.AbstractEventLoop):
    """As much of an event loop as code without sockets and threads needs."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.world = process.world
        self.ready: deque[Handle] = deque()
        self.active = False
        self.tasks: list[asyncio.Task[Any]] = []
        self.blocked_until = 0
        """A job keeps this loop, but not the process's others, from going on."""
        self.wakes = NEVER if process.dead else process.stopped_until
        """When this loop can be stepped: a time that is past, to come, or never."""
        process.loops.append(self)
        self.world.loops.append(self)

    # -- stepping

    def step(self) -> int:
        """One iteration: everything that is ready now. Between any two callbacks the process may die."""
        ready, process, world = self.ready, self.process, self.world
        if world.running is not self:
            events._set_running_loop(self)
            world.running = self
        done = 0
        for _ in range(len(ready)):
            if process.steps == process.dies_at_step:
                process.kill()
            if process.dead or (done and self.wakes > world.now):
                break
            handle = ready.popleft()
            process.steps += 1
            done += 1
            if handle.callback is not None:
                try:
                    handle.context.run(handle.callback, *handle.args)
                except Exception as error:  # noqa: BLE001  # as any loop does: it is reported, and the loop continues
                    self.call_exception_handler({"message": f"in {handle.callback}", "exception": error})
        return done

    def activate(self) -> None:
        if not self.active:
            self.active = True
            self.world.active.append(self)

    def block(self, seconds: float) -> None:
        """What a job does that computes, or sleeps without `await`: nothing else runs on this loop meanwhile."""
        self.blocked_until = self.world.now + int(seconds * MICROS)
        self.wakes = max(self.wakes, self.blocked_until)

    # -- what asyncio asks of a loop

    def time(self) -> float:
        return self.world.now / MICROS

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> Handle:
        handle = Handle(callback, args, context, 0.0)
        self.ready.append(handle)
        if not self.active:
            self.active = True
            self.world.active.append(self)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> Handle:
        return self.call_at(self.world.now / MICROS + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> Handle:
        handle, world = Handle(callback, args, context, when), self.world
        world.order += 1
        if when < NEVER:
            # Later is a microsecond at the least: else who waits out the last bit of a float would wait for ever.
            at = max(ceil(when * MICROS), world.now + (when > world.now / MICROS))
            heappush(world.timers, (at, world.order, self, handle))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=self, **options)
        self.tasks.append(task)
        if len(self.tasks) > 200:
            self.tasks = [one for one in self.tasks if not one.done()]
        return task

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self.process.dead

    def is_closed(self) -> bool:
        return self.process.dead

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.world.errors.append(f"{self.process.name}: {context.get('message')}: {error!r}")

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)
