"""Progress on its way to the store: only the newest, a few times a second."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ..context import Context
from ..job import Record

if TYPE_CHECKING:
    from ..app import Holdfast

PROGRESS_PAUSE = 0.25


class Notes:
    """Makes contexts for running jobs, and writes what they say."""

    def __init__(self, app: Holdfast) -> None:
        self._app = app
        self._commit = app.session.commit
        self._loop = asyncio.get_running_loop()

    def context(self, record: Record) -> Context:
        """The context of a claim."""
        settings = self._app.session.settings
        return Context(
            record,
            self._commit.note,
            loop=self._loop,
            max_payload=settings.max_payload,
            max_output=settings.max_output,
            progress_soon=self._progress,
        )

    def _progress(self, context: Context) -> None:
        if context.progress_busy or (note := context.progress_note()) is None:
            return
        context.progress_busy = True
        writing = self._loop.create_task(self._commit.note(note))
        writing.add_done_callback(lambda done: done.cancelled() or done.exception())  # the next one will say more
        self._loop.call_later(PROGRESS_PAUSE, self._ready_again, context)

    def _ready_again(self, context: Context) -> None:
        context.progress_busy = False
        self._progress(context)
