"""Dependencies that note what happens to them, and tasks that take one."""

import asyncio
from contextlib import contextmanager


class Seen(list):
    """What happened, in order."""

    def made(self, name, kind="async generator", value=None):
        """A dependency that notes its making and its cleanup, with the exception that it gets."""

        @contextmanager
        def noting():
            self.append(f"+{name}")
            try:
                yield value or name
            except BaseException as error:
                self.append(f"{name} got {type(error).__name__}")
                raise
            finally:
                self.append(f"-{name}")

        async def async_noting():
            with noting() as made:
                yield made

        def plain_noting():
            with noting() as made:
                yield made

        def plain():
            self.append(f"+{name}")
            return value or name

        async def coroutine():
            await asyncio.sleep(0)
            return plain()

        return {
            "async generator": async_noting, "generator": plain_noting, "plain": plain, "async": coroutine
        }[kind]  # fmt: skip


def task_of(app, how, depends, body=lambda value: value, **options):
    """A task, plain or async, with one dependency."""
    if how == "plain":

        @app.task(max_attempts=1, **options)
        def task(*, it: str = depends) -> str:
            return body(it)
    else:

        @app.task(max_attempts=1, **options)
        async def task(*, it: str = depends) -> str:
            await asyncio.sleep(0)
            return body(it)

    return task
