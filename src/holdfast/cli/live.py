"""The live view of `holdfast top`: queues, workers, running jobs and failures, refreshed every second."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual.app import App, ComposeResult
from textual.containers import Horizontal
from textual.widgets import DataTable, Footer, Static

from ..core.errors import HoldfastError
from ..core.url import redact
from .connect import parts_of
from .printing import clock_time, safe, seconds, work
from .sample import Sample, take_sample

if TYPE_CHECKING:
    from textual.binding import BindingType

    from ..app import Holdfast
    from ..client.reasons import Reasons
    from ..core.operations import QueueStats

REFRESH_EVERY = 1.0
"""Seconds between two samples of the store."""
RATE_SAMPLES = 10
"""Number of samples that rates are computed over."""
QUEUE_STATES = ("queued", "running", "scheduled", "blocked", "failed", "dead")
QUEUE_COLUMNS = (
    "Queue", "Queued", "Running", "Sched.", "Blocked", "Failed", "Dead", "Ended", "Per min", "Wait", "Run", "Oldest",
    "Workers", "",
)  # fmt: skip
"""Rates and times are over the last 15 minutes."""
BAR = 12
"""Width of a progress bar, in characters."""


class Top(App[None]):
    """The screen: counts at the top, four tables below. The keys act on the selected row."""

    TITLE = "holdfast top"
    CSS = """
    #head { height: 2; padding: 0 1; }
    #reasons { height: auto; max-height: 7; padding: 0 1; }
    #message { height: 1; padding: 0 1; color: $warning; }
    DataTable { height: 1fr; border: round $primary; }
    DataTable:focus { border: round $accent; }
    #above { height: 1fr; }
    #queues { width: 2fr; }
    #workers { width: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        ("c", "cancel", "Cancel job"),
        ("r", "retry", "Retry job"),
        ("p", "pause", "Pause or resume queue"),
        ("q", "quit", "Quit"),
    ]

    def __init__(self, holdfast: Holdfast) -> None:
        super().__init__()
        self._holdfast = holdfast
        self._samples: deque[Sample] = deque(maxlen=RATE_SAMPLES)

    def compose(self) -> ComposeResult:
        """The screen's parts."""
        yield Static(id="head", markup=False)
        yield Static(id="reasons", markup=False)
        with Horizontal(id="above"):
            yield self._table("queues", "Queues", QUEUE_COLUMNS)
            yield self._table("workers", "Workers", ("Node", "PID", "Queues", "Busy", "Heartbeat"))
        yield self._table(
            "running",
            "Running",
            (
                "Job",
                "Command",
                "Attempt",
                "Run time",
                "Progress",
                "Ends about",
                "Node",
                "PID",
            ),
        )
        yield self._table("failures", "Failures", ("Job", "Command", "State", "Attempt", "Error"))
        yield Static(id="message", markup=False)
        yield Footer()

    def _table(self, id: str, title: str, columns: tuple[str, ...]) -> DataTable[str]:
        table: DataTable[str] = DataTable(id=id, cursor_type="row")
        table.border_title = title
        for column in columns:
            table.add_column(column, key=column)
        return table

    async def on_mount(self) -> None:
        """Refresh now, then every second."""
        await self.refresh_all()
        self.set_interval(REFRESH_EVERY, self.refresh_all)

    async def on_unmount(self) -> None:
        """Close the app."""
        await self._holdfast.close()

    async def refresh_all(self) -> None:
        """Take a sample and update all tables; an error is shown in the message line."""
        try:
            sample = await take_sample(self._holdfast, self._samples[-1] if self._samples else None)
        except HoldfastError as error:
            self._show(str(error))
            return
        if not self.query("#head"):
            return  # it was closed meanwhile
        self._samples.append(sample)
        self.query_one("#head", Static).update(self._head(sample))
        self.query_one("#reasons", Static).update("\n".join(_reasons(sample.slow.why)))
        self._fill("queues", {queue.name: _queue_row(queue, sample) for queue in sample.stats.queues})
        self._fill("workers", {worker.id: _worker_row(worker) for worker in sample.workers})
        now = sample.now
        self._fill("running", {job.id: _running_row(job, now) for job in sample.running})
        self._fill("failures", {job.id: _failure_row(job) for job in sample.failures})

    def _head(self, sample: Sample) -> str:
        counts = ", ".join(f"{count} {state}" for state, count in sample.stats.counts.items() if count) or "no jobs"
        first = self._samples[0]
        rate = "" if sample.at <= first.at else f"{(sample.ended - first.ended) / (sample.at - first.at):.1f} jobs/s"
        return f"{safe(redact(parts_of(self._holdfast).url))}   {counts}\n{rate}   {sample.latency}"

    def _fill(self, id: str, rows: dict[str, tuple[Any, ...]]) -> None:
        """Update a table row by row, so that the cursor keeps its row."""
        table = self._find(id)
        for key in [row.value for row in table.rows if row.value not in rows]:
            if key is not None:
                table.remove_row(key)
        columns = list(table.columns)
        known = {row.value for row in table.rows}
        for key, row in rows.items():
            cells = [safe(str(cell)) for cell in row]
            if key not in known:
                table.add_row(*cells, key=key)
                continue
            for column, cell in zip(columns, cells, strict=True):
                table.update_cell(key, column, cell, update_width=True)

    def _find(self, id: str) -> DataTable[str]:
        return cast("DataTable[str]", self.query_one(f"#{id}"))

    def _selected(self, id: str) -> str | None:
        table = self._find(id)
        if not table.row_count:
            return None
        return table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value

    def _show(self, text: str) -> None:
        self.query_one("#message", Static).update(safe(text))

    async def _do(self, operation: Awaitable[Any], message: str) -> None:
        try:
            await operation
        except HoldfastError as error:
            message = str(error)
        self._show(message)
        await self.refresh_all()

    async def action_cancel(self) -> None:
        """Cancel the selected running job."""
        if (id := self._selected("running")) is not None:
            await self._do(self._holdfast.cancel(id), f"job {id} was asked to stop")

    async def action_retry(self) -> None:
        """Retry the selected failed or dead job."""
        if (id := self._selected("failures")) is not None:
            await self._do(self._holdfast.retry(id), f"job {id} is queued again")

    async def action_pause(self) -> None:
        """Pause the selected queue, or resume it."""
        if (name := self._selected("queues")) is None or not self._samples:
            return
        paused = any(queue.paused for queue in self._samples[-1].stats.queues if queue.name == name)
        if paused:
            await self._do(self._holdfast.resume(name), f"queue {name} is resumed")
        else:
            await self._do(self._holdfast.pause(name), f"queue {name} is paused")


def _queue_row(queue: QueueStats, sample: Sample) -> tuple[Any, ...]:
    counts = [queue.counts.get(state, 0) for state in QUEUE_STATES]
    ended = sum(queue.counts.get(state, 0) for state in ("succeeded", "cancelled"))
    per_minute, *times = sample.rate(queue.name)
    oldest = "" if queue.oldest is None else seconds((sample.now - queue.oldest) / 1_000_000)
    unserved = queue.counts.get("queued", 0) and not queue.listeners
    note = "paused" if queue.paused else "no worker" if unserved else ""
    means = ["" if one is None else seconds(one) for one in times]
    return (queue.name, *counts, ended, f"{per_minute:.3g}", *means, oldest, queue.listeners, note)


def _reasons(why: Reasons) -> list[str]:
    """The reasons why jobs wait, one per line, each with its action."""
    if not why.parts:
        return []
    head = f"{why.waiting:,} job{' waits' if why.waiting == 1 else 's wait'}:"
    return [head, *(f"  {safe(f'{part.text}: {part.action}')}" for part in why.parts)]


def _worker_row(worker: Any) -> tuple[Any, ...]:
    busy = f"{len(worker.jobs)}/{worker.slots}" if worker.slots else worker.kind
    busy += "" if worker.state == "active" else f" {worker.state}"
    return worker.node, worker.pid, ", ".join(worker.queues), busy, f"{worker.last_heartbeat:.0f} s ago"


def _running_row(job: Any, now: int) -> tuple[Any, ...]:
    ran = "" if job.started_at is None else seconds(now / 1_000_000 - job.started_at.timestamp())
    what = work(job) + (" (cancellation requested)" if job.cancel_requested else "")
    ends = "" if job.estimated_end is None else clock_time(job.estimated_end)
    return job.id, what, job.attempt, ran, _bar(job.progress), ends, job.node or "", job.pid or ""


def _failure_row(job: Any) -> tuple[Any, ...]:
    return job.id, work(job), job.state.value, f"{job.attempt}/{job.max_attempts or '∞'}", job.error or ""


def _bar(progress: Any) -> str:
    if progress is None:
        return ""
    if (share := progress.share) is None:
        return f"{progress.done:g} {progress.note or ''}".strip()
    return f"{'█' * round(BAR * share):░<{BAR}} {share:.0%} {progress.note or ''}".strip()
