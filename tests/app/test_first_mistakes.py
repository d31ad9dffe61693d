"""What a newcomer writes wrongly gets an error that says what to write."""

from contextlib import contextmanager, suppress
from datetime import timedelta

import pytest

from holdfast import ConfigError, Holdfast, InvalidJob, Worker
from holdfast.testing import inline, on_memory
from support.workers import work_off


@pytest.mark.parametrize("imports", ["shop.mail", [1]])
def test_imports_is_a_list_of_names(imports):
    with pytest.raises(ConfigError, match=r"imports= must be a list of module names, such as \['shop.mail'\], not"):
        Holdfast("memory://", imports=imports)


@pytest.mark.parametrize("take", [Worker, lambda url: inline(url).__enter__()])
def test_a_url_is_no_app(take):
    with pytest.raises(ConfigError, match=r"pass a Holdfast app, .*, not 'sqlite"):
        take("sqlite:///jobs.db")


async def test_run_sync_is_for_blocking_programs():
    with pytest.raises(ConfigError, match=r"run_sync\(\) was called on a running event loop: await worker.run\(\)"):
        Worker(Holdfast("memory://")).run_sync()


@pytest.mark.parametrize("given", [{"args": 1}, {"args": "ab"}, {"kwargs": [1]}])
def test_arguments_of_a_schedule_are_a_list_and_a_dict(given):
    with pytest.raises(InvalidJob, match=r"@app.cron takes a list as args= and a dict as kwargs="):
        Holdfast("memory://").cron(every=60, **given)


def test_a_bench_inside_a_bench_is_refused_and_the_app_stays_usable():
    app = Holdfast("sqlite:///jobs.db")
    with on_memory(app) as bench:
        with pytest.raises(ConfigError, match="the app is on a memory store already"), on_memory(app):
            pass
        bench.advance(timedelta(minutes=1))
    assert repr(app) == "Holdfast('sqlite:///jobs.db')"


def test_a_lifespan_takes_no_arguments():
    def life(app):
        yield

    with pytest.raises(ConfigError, match=r"app.lifespan calls life\(\) without arguments: remove its parameters"):
        Holdfast("memory://").lifespan(life)


async def test_a_hook_around_calls_must_return_a_context_manager(app):
    def forgetful(task):
        pass

    app.around_call.append(forgetful)
    handle = await app.task(lambda: 1, name="one").using(max_attempts=1).enqueue()
    await work_off(app)
    assert "around_call: forgetful must return a context manager, not None" in (await handle.job()).error


async def test_a_hook_around_calls_cannot_suppress_an_error(app):
    @contextmanager
    def swallow(task):
        with suppress(ZeroDivisionError):
            yield

    app.around_call.append(swallow)
    handle = await app.task(lambda: 1 / 0, name="divide").using(max_attempts=1).enqueue()
    await work_off(app)
    assert (await handle.job()).error == "ZeroDivisionError: division by zero"


@pytest.mark.parametrize(
    ("use", "advice"),
    [
        (lambda app, task: task.delay(1), r"no attribute 'delay', which is Celery's: write `await task.enqueue\(…\)`"),
        (lambda app, task: task.apply_async((1,)), r"write `await task.using\(delay=60\).enqueue\(…\)`"),
        (lambda app, task: task.s(1), r"write `flow.add\(task, …\)` of a `Flow`"),
        (lambda app, task: app.send_task("send"), r"write `await app.enqueue\('name', …\)`"),
        (lambda app, task: app.no_such_name, r"^'Holdfast' object has no attribute 'no_such_name'$"),
    ],
    ids=["delay", "apply_async", "signature", "send_task", "another"],
)
def test_names_of_celery_get_a_hint(use, advice):
    app = Holdfast("memory://")
    task = app.task(print)
    with pytest.raises(AttributeError, match=advice):
        use(app, task)


@pytest.mark.parametrize(
    ("option", "advice"),
    [("bind", r"`def send\(ctx: Context, …\)`"), ("max_retries", "write max_attempts="), ("bnd", "known options: ")],
)
def test_options_of_celery_get_a_hint(option, advice):
    with pytest.raises(TypeError, match=f"unknown option '{option}'.*{advice}"):
        Holdfast("memory://").task(**{option: True})(print)


def test_countdown_of_celery_is_a_delay():
    with pytest.raises(TypeError, match="unknown option 'countdown', which is Celery's: write delay="):
        Holdfast("memory://").task(print).using(countdown=3)
