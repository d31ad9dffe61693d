"""An app made without a store reads the environment at its first use; `setup` names the store before that."""

import asyncio
import os

import pytest

from holdfast import ConfigError, Holdfast
from holdfast.app import parts_of
from holdfast.store.reference.memory import MemoryStore


async def test_the_environment_is_read_at_the_first_use(monkeypatch, tmp_path):
    app = Holdfast()

    @app.task
    def send() -> None: ...

    monkeypatch.setenv("HOLDFAST_URL", f"sqlite:///{tmp_path}/later.db")
    async with app:
        await send.enqueue()
    assert (tmp_path / "later.db").exists()
    assert repr(app) == f"Holdfast('sqlite:///{tmp_path}/later.db')"


async def test_setup_names_the_store_and_settings_before_the_first_use(tmp_path):
    app = Holdfast(max_attempts=7)
    app.setup(f"sqlite:///{tmp_path}/a.db", retry_base=3)
    app.setup(url=f"sqlite:///{tmp_path}/b.db")
    async with app:
        handle = await app.enqueue("noop")
        assert (await handle.job()).max_attempts == 7
        assert parts_of(app).runtime.current_settings().retry_base == 3
        with pytest.raises(
            ConfigError, match=r"the app is in use with sqlite:///.*b.db: call setup before its first use"
        ):
            app.setup("memory://")
    assert not (tmp_path / "a.db").exists()
    assert (tmp_path / "b.db").exists()


async def test_setup_takes_a_store(monkeypatch):
    monkeypatch.delenv("HOLDFAST_URL", raising=False)
    app, store = Holdfast(), MemoryStore()
    app.setup(store)
    assert repr(app) == "Holdfast('memory://')"
    async with app:
        await app.enqueue("noop")
    assert (await store.stats())[0].counts["queued"] == 1


def test_wrong_settings_and_urls_are_refused_when_they_are_given():
    app = Holdfast()
    for wrong in ({"url": "bogus://x"}, {"lease": -1}, {"cloudpickle": True, "url": "memory://"}):
        with pytest.raises(ConfigError):
            app.setup(**wrong)
        with pytest.raises(ConfigError):
            Holdfast(wrong.get("url"), **{name: value for name, value in wrong.items() if name != "url"})


def test_a_secret_may_come_with_setup(monkeypatch):
    monkeypatch.delenv("HOLDFAST_SECRET", raising=False)
    app = Holdfast(cloudpickle=True)
    app.setup("memory://", secret="s" * 32)
    app.sync.enqueue(lambda: 5)
    app.sync.close()
    late = Holdfast(cloudpickle=True)
    with pytest.raises(ConfigError, match="needs a secret"):
        late.sync.enqueue(lambda: 5)


async def test_settings_alone_keep_a_store_that_was_given_and_a_wrong_url_changes_nothing(monkeypatch):
    store = MemoryStore()
    app = Holdfast(store)
    app.setup(max_attempts=9)
    with pytest.raises(ConfigError):
        app.setup("bogus://x", max_attempts=1)
    async with app:
        assert (await (await app.enqueue("noop")).job()).max_attempts == 9
    assert (await store.stats())[0].counts["queued"] == 1


async def test_printing_an_app_fixes_nothing(monkeypatch, tmp_path):
    monkeypatch.delenv("HOLDFAST_URL", raising=False)
    app = Holdfast()
    assert repr(app) == "Holdfast('sqlite:///holdfast.db')"
    monkeypatch.setenv("HOLDFAST_URL", f"sqlite:///{tmp_path}/later.db")
    if (child := os.fork()) == 0:
        os._exit(0 if "later.db" in repr(app) else 1)
    assert (await asyncio.to_thread(os.waitpid, child, 0))[1] == 0
    async with app:
        await app.enqueue("noop")
    assert (tmp_path / "later.db").exists()
