"""Streams of partial results: what a job emits, and what its readers get."""

import asyncio
from contextlib import aclosing

import pytest

from holdfast import Context, Discard, Holdfast, InvalidJob, JobNotFound, LeaseLost, PayloadTooLarge, State
from holdfast.core.errors import ConfigError, StoreUnavailable
from holdfast.core.operations import Output
from holdfast.store.reference.memory import MemoryStore
from holdfast.tasks import stream_writer
from support.eventually import eventually
from support.inside import session_of
from support.workers import work_off, working


async def values(handle, *given, **options):
    return [chunk.value async for chunk in handle.stream(*given, **options)]


async def test_a_stream_is_read_while_the_job_runs(app):
    go = asyncio.Event()

    @app.task
    async def speak(ctx: Context) -> str:
        await ctx.emit({"text": "a\nb"})
        await go.wait()
        await ctx.emit(None)
        return "done"

    handle = await speak.enqueue()
    early = handle.stream()
    first = asyncio.ensure_future(anext(early))
    async with working(app):
        chunk = await asyncio.wait_for(first, 30)
        assert (chunk.value, chunk.attempt, chunk.fence, chunk.first, chunk.missed) == ({"text": "a\nb"}, 1, 1, True, 0)
        assert await values(handle, follow=False) == [{"text": "a\nb"}]
        go.set()
        assert [one.value async for one in early] == [None]
        assert await handle.result(timeout=30) == "done"
    assert await values(handle) == [{"text": "a\nb"}, None]  # a late reader gets all that is stored
    assert await values(handle, chunk.position) == [None]


async def test_readers_of_a_job_that_is_removed_at_its_end_get_no_error(app):
    read = asyncio.Event()

    @app.task(retention=0)
    async def speak(ctx: Context) -> None:
        ctx.progress(1, 2)
        await ctx.emit("first")
        await read.wait()

    async def watch() -> None:
        async for progress in handle.progress():
            shares.append(progress.share)  # noqa: PERF401  # each as it comes

    handle, found, shares = await speak.enqueue(), [], []
    async with working(app):
        watching = asyncio.ensure_future(watch())
        async for chunk in handle.stream():
            found.append(chunk.value)
            await eventually(lambda: shares == [0.5])
            read.set()
        await asyncio.wait_for(watching, 30)
    assert (found, shares) == (["first"], [0.5])
    for reading in (values(handle), values(handle, follow=False), watch()):
        with pytest.raises(JobNotFound):
            await reading


@pytest.mark.parametrize("how", ["loop", "thread", "batched"])
async def test_chunks_keep_their_order_and_all_are_stored_before_the_end(app, how):
    if how == "thread":

        @app.task
        def count(ctx: Context) -> None:
            for number in range(500):
                ctx.emit(number)

    elif how == "loop":

        @app.task
        async def count(ctx: Context) -> None:
            for number in range(500):
                await ctx.emit(number)

    else:

        @app.task
        async def count(ctx: Context) -> None:
            await asyncio.gather(*(ctx.emit(number) for number in range(500)))

    handle = await count.enqueue()
    await work_off(app)
    assert await values(handle) == list(range(500))
    pieces = await session_of(app).store.output(handle.id, 0, 1 << 20, stream=True)
    assert len(pieces) < 250  # chunks that wait for a write share the next


async def test_a_reader_sees_where_an_attempt_begins(app):
    @app.task(max_attempts=3, retry=lambda *_: 0.0)
    async def again(ctx: Context) -> None:
        await ctx.emit(f"{ctx.attempt}a")
        await ctx.emit(f"{ctx.attempt}b")
        if ctx.attempt < 3:
            raise ValueError

    handle = await again.enqueue()
    async with working(app):
        await handle.wait(timeout=30)
    chunks = [chunk async for chunk in handle.stream()]
    assert [(one.value, one.attempt, one.fence, one.first) for one in chunks] == [
        ("1a", 1, 1, True), ("1b", 1, 1, False),
        ("2a", 2, 2, True), ("2b", 2, 2, False),
        ("3a", 3, 3, True), ("3b", 3, 3, False),
    ]  # fmt: skip
    for place, chunk in enumerate(chunks, 1):  # wherever a reader resumes
        assert [one async for one in handle.stream(chunk.position)] == chunks[place:]


async def test_only_the_newest_chunks_are_kept_and_a_reader_is_told(make_app):
    app = make_app(max_output=1000)

    @app.task
    async def much(ctx: Context) -> None:
        for number in range(100):
            await ctx.emit(f"{number:096}")  # a line of 99 bytes
            await asyncio.sleep(0.001)

    handle = await much.enqueue()
    async with app:
        await work_off(app)
        chunks = [chunk async for chunk in handle.stream()]
        assert int(chunks[-1].value) == 99
        assert chunks[-1].position == 9900
        assert chunks[0].missed == chunks[0].position - 99 > 0
        assert [one.missed for one in chunks[1:]] == [0] * (len(chunks) - 1)


async def test_an_emitter_waits_while_the_store_does_not_answer(app, monkeypatch):
    monkeypatch.setattr(stream_writer, "MAX_UNWRITTEN", 100)
    monkeypatch.setattr(stream_writer, "REPEAT_PAUSE", 0.01)
    down, emitted = asyncio.Event(), []

    @app.task
    async def speak(ctx: Context) -> None:
        down.set()
        for number in range(50):
            await ctx.emit(f"{number:010}")
            emitted.append(number)

    handle = await speak.enqueue()
    async with working(app):
        commit, tries = session_of(app).commit, []
        note = commit.note

        async def failing(one):
            if down.is_set() and one.output and one.output.stream:
                tries.append(one.output.at)
                raise StoreUnavailable("gone")
            return await note(one)

        monkeypatch.setattr(commit, "note", failing)
        await eventually(lambda: len(tries) > 10)
        assert len(emitted) < 20
        assert set(tries) == {0}  # the same piece again
        down.clear()
        await handle.wait(timeout=30)
    assert await values(handle) == [f"{number:010}" for number in range(50)]


async def test_a_lost_claim_emits_no_more(app):
    seen = []

    @app.task
    async def speak(ctx: Context) -> None:
        await ctx.emit(1)
        await eventually(lambda: values(app.handle(ctx.job.id), follow=False))
        await app.handle(ctx.job.id).mark_failed("lost")
        try:
            while True:
                await ctx.emit(2)
                await asyncio.sleep(0.01)
        except LeaseLost as error:
            seen.append(str(error))
            raise

    handle = await speak.using(max_attempts=1).enqueue()
    await work_off(app)
    assert "has ended" in seen[0]
    assert await values(handle) == [1]


async def test_what_was_emitted_before_a_failure_is_stored(app):
    @app.task
    async def speak(ctx: Context) -> None:
        await ctx.emit("so far")
        raise Discard("no")

    handle = await speak.enqueue()
    await work_off(app)
    assert (await values(handle), (await handle.job()).state) == (["so far"], State.DEAD)


async def test_a_chunk_is_checked_before_it_is_emitted(make_app):
    app = make_app(max_payload=1000)

    @app.task
    async def speak(ctx: Context) -> None:
        for wrong, error in ((object(), InvalidJob), (float("nan"), InvalidJob), ("x" * 1000, PayloadTooLarge)):
            with pytest.raises(error, match="chunk"):
                ctx.emit(wrong)

    async with app:
        handle = await speak.enqueue()
        await work_off(app)
        assert (await handle.job()).state == State.SUCCEEDED
        assert await values(handle) == []


async def test_the_chunks_of_a_job_that_completes_itself_are_stored_with_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(stream_writer, "STREAM_PAUSE", 3600)  # after the first chunk
    app = Holdfast(f"sqlite:///{tmp_path}/jobs.db?synchronous=normal")

    @app.task
    def speak(ctx: Context) -> None:
        for number in range(20):
            ctx.emit(number)
        with ctx.transaction(), pytest.raises(ConfigError, match=r"inside a ctx\.transaction"):
            ctx.emit("inside")

    async with app:
        handle = await speak.enqueue()
        await work_off(app)
        assert (await handle.job()).state == State.SUCCEEDED
        assert await values(handle) == list(range(20))


async def test_mistakes_of_a_reader(app):
    @app.task
    async def speak(ctx: Context) -> None:
        await ctx.emit("abc")

    with pytest.raises(JobNotFound):
        await values(app.handle("unknown"))
    handle = await speak.enqueue()
    await work_off(app)
    for wrong in (-1, "1", 1.0, 2**53, 2**70):
        with pytest.raises(InvalidJob, match="position must be"):
            await values(handle, wrong)
    with pytest.raises(InvalidJob, match="has no chunk at position 2: continue"):
        await values(handle, 2)
    assert await values(handle, 100) == []


async def test_a_damaged_chunk_harms_its_own_readers_only():
    async with Holdfast(MemoryStore()) as app:

        @app.task
        async def speak(ctx: Context) -> None:
            await ctx.say(output=Output(0, b'{"a\n2\n', 100, stream=True))

        handle = await speak.enqueue()
        await work_off(app)
        with pytest.raises(InvalidJob, match=r"damaged.*continue at position 4"):
            await values(handle)
        assert await values(handle, 4) == [2]


@pytest.mark.parametrize("pieces", [[b'1\n2\n{"a\n3\n'], [b"1\n2\n", b'{"a\n3\n']])
async def test_what_was_emitted_before_a_damaged_chunk_is_read_first(pieces):
    async with Holdfast(MemoryStore()) as app:

        @app.task
        async def speak(ctx: Context) -> None:
            at = 0
            for piece in pieces:
                await ctx.say(output=Output(at, piece, 100, stream=True))
                at += len(piece)

        handle, got = await speak.enqueue(), []
        await work_off(app)

        async def read():
            async for chunk in handle.stream():
                got.append(chunk.value)  # noqa: PERF401  # it raises in between

        with pytest.raises(InvalidJob, match=r"damaged.*continue at position 8"):
            await read()
        assert got == [1, 2]
        assert await values(handle, 8) == [3]


async def test_listeners_of_readers_are_closed(app):
    @app.task
    async def speak(ctx: Context) -> None:
        await ctx.emit(1)
        await asyncio.Event().wait()

    handle = await speak.enqueue()
    async with working(app):
        listeners = lambda: [t for one in _listeners(app) for t in one.topics if t.startswith("note/")]  # noqa: E731
        async with aclosing(handle.stream()) as stream:
            await anext(stream)
            waiting = asyncio.ensure_future(anext(stream))
            await eventually(lambda: len(listeners()) == 1)
            waiting.cancel()
            await asyncio.wait([waiting])
        await eventually(lambda: listeners() == [])
        await handle.cancel()


def _listeners(app):
    store = session_of(app).store
    return store._data.listeners if hasattr(store, "_data") else store._listeners._all


def test_blocking_readers(app):
    @app.task
    def speak(ctx: Context) -> None:
        for number in range(3):
            ctx.emit(number)
            ctx.progress(number + 1, 3)

    handle = speak.sync.enqueue()
    with app.sync:
        handle.job()
        asyncio.run(work_off(app))
        assert [chunk.value for chunk in handle.stream()] == [0, 1, 2]
        last = next(iter(handle.stream()))
        assert [chunk.value for chunk in handle.stream(last.position, follow=False)] == [1, 2]
        assert [one.done for one in handle.progress()] == [3]
