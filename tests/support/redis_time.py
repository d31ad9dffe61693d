"""A Redis store whose time the test sets: the scripts are sent with it in the place of the server's."""

from __future__ import annotations

from holdfast.store.redis import RedisStore
from holdfast.store.redis.link import Link
from holdfast.store.redis.scripts import Script


class ManualLink(Link):
    """Sends the test's time in the place of the server's."""

    clock = None

    async def run(self, script, args=(), then=None, **options):
        seconds, micros = divmod(self.clock.now(), 1_000_000)
        changed = script.text.replace(b"call('TIME')", b"{%d, %d}" % (seconds, micros))
        assert changed != script.text
        return await super().run(Script(script.name, changed, b"0" * 40), args, then, **options)


class ManualStore(RedisStore):
    clock = None

    def sibling(self):
        made = ManualStore(self.address)
        made.clock = self.clock
        return made

    async def open(self):
        await super().open()
        self._link.__class__ = ManualLink
        self._link.clock = self.clock

    async def now(self):
        return self.clock.now()
