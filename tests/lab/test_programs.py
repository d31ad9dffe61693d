"""A small version of `python -m lab programs`: one app in every kind of program and web server."""

import os
import subprocess
import sys
import textwrap

import pytest
from lab.programs.command import CASES, SERVERS, enqueue, stored
from lab.programs.servers import ROOT

COUNT = 60
DAILY = ("asyncio.run", "threads", "fork")
"""Kinds of programs in `make test`."""


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/jobs.db?synchronous=normal"


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[] if case in DAILY else [pytest.mark.extended]) for case in CASES]
)
def test_a_program_with_short_loops_loses_nothing_and_stays_small(case, url):
    acknowledged, reported, files, threads = enqueue(case, url, COUNT)
    assert (acknowledged, reported) == (COUNT, 0)
    assert stored(url) == COUNT
    assert files < 100
    assert threads < 40


@pytest.mark.extended
@pytest.mark.parametrize("case", [case for case in SERVERS if "gevent" not in case])
def test_a_web_server_loses_nothing_and_stays_small(case, url):
    acknowledged, reported, files, threads = enqueue(case, url, COUNT)
    assert (acknowledged, reported) == (COUNT, 0)
    assert stored(url) == COUNT
    assert files < 100
    assert threads < 40


@pytest.mark.extended
@pytest.mark.parametrize("case", [case for case in SERVERS if "gevent" in case])
def test_greenlets_are_refused_without_a_hang(case, url):
    acknowledged, reported, _, _ = enqueue(case, url, 4)
    assert (acknowledged, reported) == (0, 4)


def run(code, *args):
    """Run a program, complaints of drivers about what was left open included; what it prints.

    Not with `-X dev`: that also has asyncio report each step that took long, as any may on a busy machine.
    """
    done = subprocess.run(
        [sys.executable, "-W", "default", "-c", textwrap.dedent(code), *args],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return done.stdout + done.stderr


GEVENT = """
    from gevent import monkey
    monkey.patch_all()
    import sys
    from holdfast import ConfigError, Holdfast
    try:
        Holdfast(sys.argv[1])
    except ConfigError as error:
        print(error)
"""


def test_monkey_patched_threads_are_refused_with_what_to_do(url):
    assert "--worker-class gthread" in run(GEVENT, url)


@pytest.mark.parametrize("preload", [[], ["--preload"]], ids=["", "preload"])
def test_a_server_of_greenlets_refuses_to_start(url, preload, tmp_path):
    """Once, where it is made: not in every request of a server that seems to have started."""
    command = ["-m", "gunicorn", "--worker-class", "gevent", "--bind", f"unix:{tmp_path}/socket", *preload]
    done = subprocess.run(
        [sys.executable, *command, "lab.programs.site:wsgi"],
        env=os.environ | {"LAB_URL": url},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode
    assert "--worker-class gthread" in done.stderr


TRIO = """
    import sys
    import trio
    from holdfast import Holdfast, HoldfastError
    app = Holdfast(sys.argv[1])
    async def main():
        for awaits in (True, False):
            try:
                app.sync.enqueue("noop") if not awaits else await app.enqueue("noop")
            except HoldfastError as error:
                print(error)
        await trio.to_thread.run_sync(app.sync.enqueue, "noop")
    trio.run(main)
"""


def test_under_trio_both_surfaces_say_what_to_do_and_a_thread_works(url):
    assert run(TRIO, url).count("trio.to_thread.run_sync") == 2
    assert stored(url) == 1


LATE = """
    import builtins, sys
    from holdfast import Holdfast, HoldfastError
    app = Holdfast(sys.argv[1])
    app.sync.enqueue("noop")
    class Late:
        def __del__(self, app=app, error=HoldfastError):
            try:
                app.sync.enqueue("noop")
            except error as reported:
                print(reported)
    builtins.late = Late()
"""


def test_a_finalizer_at_the_end_of_the_interpreter_is_reported_so(url):
    assert "the interpreter is shutting down" in run(LATE, url)
    assert stored(url) == 1


AT_EXIT = """
    import atexit, sys
    from holdfast import Holdfast
    app = Holdfast(sys.argv[1])
    atexit.register(lambda: app.sync.enqueue("noop"))
    app.sync.enqueue("noop")
"""


def test_a_function_that_atexit_calls_may_enqueue(url):
    assert run(AT_EXIT, url) == ""
    assert stored(url) == 2
