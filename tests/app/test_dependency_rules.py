"""Dependencies at registration, at enqueue and in direct calls: what is refused, and how."""

from contextlib import contextmanager
from typing import Annotated, Any

import pytest

from holdfast import ConfigError, Context, Depends, Flow, Holdfast, InvalidJob, limit
from holdfast.testing import on_memory, override


def get_mailer() -> str:
    return "mailer"


def for_job(ctx: Context) -> str:
    return ctx.job.id


@pytest.fixture
def app():
    return Holdfast("memory://", cloudpickle=True, secret="s" * 32)


def positional(order: int, mailer: str = Depends(get_mailer)) -> None: ...


def annotated(order: int, *, mailer: Annotated[str, Depends(get_mailer)]) -> None: ...


def needing_more(url: str) -> str:
    return url


def by_position(mailer: str = Depends(get_mailer), /) -> str:
    return mailer


def needs_a_job(it: str = Depends(get_mailer)) -> str:
    return it


@contextmanager
def managed():
    yield 1


def cyclic() -> Any:
    """Two dependencies that need each other: a default is evaluated before the function exists, so by hand."""

    def first(it: Any = None) -> int:
        return 1

    def second(it: Any = Depends(first)) -> int:  # noqa: B008
        return 2

    first.__defaults__ = (Depends(second),)
    return first


@pytest.mark.parametrize(
    ("depends", "message"),
    [
        (lambda: Depends(needing_more), r"needing_more\(\) needs 'url', which no worker provides"),
        (lambda: Depends(by_position), r"passed by name; remove the / after them"),
        (lambda: Depends(managed), r"dependency managed\(\): a decorator hides its generator"),
        (lambda: Depends(cyclic()), r"first\(\) needs itself: first -> second -> first"),
        (lambda: Depends(for_job, scope="worker"), r"made once per worker, so it has no job: remove 'ctx'"),
        (
            lambda: Depends(needs_a_job, scope="worker"),
            r"needs get_mailer\(\), which is made for each job: declare Depends\(get_mailer, scope='worker'\)",
        ),
        (lambda: Depends("mailer"), "Depends takes a function or a class, not 'mailer'"),
        (lambda: Depends(get_mailer, scope="request"), "must be 'job' or 'worker', not 'request'"),
    ],
)
def test_a_dependency_that_no_worker_could_make_is_refused_at_registration(app, depends, message):
    with pytest.raises(ConfigError, match=message):

        @app.task
        def send(order: int, *, mailer: str = depends()) -> None: ...


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (positional, r"parameter 'mailer' .* not keyword-only; declare it as \(…, \*, mailer=Depends\(get_mailer\)\)"),
        (annotated, r"the annotation of 'mailer' contains Depends: .+, mailer: … = Depends\(…\)"),
    ],
)
def test_a_parameter_that_a_call_could_pass_is_refused(app, fn, message):
    with pytest.raises(ConfigError, match=message):
        app.task(fn)


def test_a_batch_has_no_context_for_its_dependencies(app):
    with pytest.raises(ConfigError, match=r"share no context: remove the Context from dependency for_job\(\)"):

        @app.task(batch=5, wait=0)
        def together(items: list[int], *, id: str = Depends(for_job)) -> None: ...


def test_depends_without_its_function_is_refused(app):
    with pytest.raises(
        ConfigError, match=r"send\(\): the default of 'mailer' is Depends itself: write Depends\(function"
    ):

        @app.task
        def send(*, mailer: str = Depends) -> None: ...


class Lines:
    """A codec of a user."""

    def dumps(self, value: Any) -> bytes:
        return repr(value).encode()

    def loads(self, data: bytes) -> Any:
        return eval(data)


@pytest.mark.parametrize("codec", [None, Lines()], ids=["json", "own codec"])
@pytest.mark.parametrize("more", [False, True], ids=["exact", "with **more"])
def test_an_injected_argument_is_never_part_of_a_call(app, codec, more):
    if more:

        @app.task(codec=codec)
        def send(order: int, *, mailer: str = Depends(get_mailer), **more: int) -> str:
            return f"{order} {mailer}"
    else:

        @app.task(codec=codec)
        def send(order: int, *, mailer: str = Depends(get_mailer)) -> str:
            return f"{order} {mailer}"

    refused = pytest.raises(InvalidJob, match=r"send\(\) gets 'mailer' from Depends\(get_mailer\); do not pass it")
    with on_memory(app) as bench:
        with refused:
            send.sync.enqueue(1, mailer="mine")
        with refused:
            app.sync.enqueue_many([send.call(1, mailer="mine")])
        with refused:
            app.sync.enqueue("send", 1, mailer="mine")
        if codec is None:
            with refused:
                flow = Flow()
                flow.add(send, flow.add(send, 1), mailer="mine")
                app.sync.enqueue_flow(flow)
            with refused:
                app.cron("@daily", args=[1], kwargs={"mailer": "mine"})(send)
        assert app.sync.jobs().jobs == []
        handle = send.sync.enqueue(1)
        bench.work()
        assert handle.result() == "1 mailer"
        if codec is None:
            smuggled = app.sync.submit("send", b'{"order": 1, "mailer": "theirs"}', json=True, max_attempts=1)
            bench.work(check=False)
            assert "gets 'mailer' from Depends(get_mailer)" in str(smuggled.job().error)


def test_a_limit_cannot_be_keyed_by_an_injected_parameter(app):
    with pytest.raises(ConfigError, match="names parameter 'mailer', which the task does not have"):

        @app.task(limit=limit(key="mailer", concurrency=1))
        def send(*, mailer: str = Depends(get_mailer), **more: int) -> None: ...


def test_a_pickled_callable_cannot_have_dependencies(app):
    def local(*, mailer: str = Depends(get_mailer)) -> None: ...

    with on_memory(app), pytest.raises(InvalidJob, match="which pickled callables cannot have: make it a task"):
        app.sync.enqueue(local)


def test_a_direct_call_takes_its_dependencies_as_arguments(app):
    @app.task
    def send(order: int, *, mailer: str = Depends(get_mailer), log: str = Depends(get_mailer)) -> str:
        return f"{order} {mailer} {log}"

    assert send(1, mailer="mine", log="my log") == "1 mine my log"
    with pytest.raises(TypeError, match=r"send\(\) was called directly, .*: pass log=…, mailer=…"):
        send(1)


def test_a_replacement_that_no_worker_could_make_is_refused_at_once(app):
    def wrapping(mailer: str = Depends(get_mailer)) -> str:
        return mailer

    with pytest.raises(ConfigError, match=r"wrapping\(\) needs itself"), override(app, get_mailer, wrapping):
        pass
    with pytest.raises(ConfigError, match="needs 'url'"), override(app, get_mailer, needing_more):
        pass


def test_a_replacement_that_takes_the_context_is_refused_where_there_is_no_job(app):
    def get_pool() -> str:
        return "pool"

    @app.task
    def send(*, pool: str = Depends(get_pool, scope="worker")) -> None: ...

    with pytest.raises(ConfigError, match="made once per worker"), override(app, get_pool, for_job):
        pass

    @app.task(batch=5)
    def together(items: list[int], *, mailer: str = Depends(get_mailer)) -> None: ...

    with pytest.raises(ConfigError, match="handles a batch"), override(app, get_mailer, for_job):
        pass


class Unhashable:
    __hash__ = None

    def __call__(self) -> str:
        return "it"


def test_an_unhashable_function_is_refused(app):
    with pytest.raises(ConfigError, match="not hashable"):
        Depends(Unhashable())
    with pytest.raises(ConfigError, match="not hashable"), override(app, get_mailer, Unhashable()):
        pass
