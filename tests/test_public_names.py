"""What can be imported from the package, and what importing it costs."""

import subprocess
import sys

import pytest

import holdfast
import holdfast.core.errors
import holdfast.testing

PUBLIC = [
    "Backoff",
    "Chunk",
    "Claim",
    "ConfigError",
    "Context",
    "Depends",
    "Discard",
    "Filter",
    "Flow",
    "FlowHandle",
    "FlowPage",
    "FlowStatus",
    "Handle",
    "Holdfast",
    "HoldfastError",
    "InvalidJob",
    "Job",
    "JobCancelled",
    "JobExists",
    "JobFailed",
    "JobNotFound",
    "KeyConflict",
    "LeaseLost",
    "MissingExtra",
    "Node",
    "OutcomeUnknown",
    "Page",
    "PartialEnqueue",
    "PayloadTooLarge",
    "ProcessFailed",
    "QueueFull",
    "Retry",
    "Schedule",
    "ScheduleNotFound",
    "Snooze",
    "State",
    "Stats",
    "StoreLost",
    "StoreRefused",
    "StoreUnavailable",
    "Task",
    "UnknownTask",
    "Worker",
    "WorkerNotFound",
    "InvalidState",
    "__version__",
    "limit",
    "as_completed",
]

ERRORS = {
    name
    for name, kind in vars(holdfast.core.errors).items()
    if isinstance(kind, type) and kind.__module__ == holdfast.core.errors.__name__
}


def test_the_public_names_are_these_and_no_others():
    assert sorted(holdfast.__all__) == sorted(PUBLIC)


def test_every_public_name_is_there():
    for name in holdfast.__all__:
        assert getattr(holdfast, name) is not None


def test_the_names_for_tests_are_these():
    names = ["Bench", "ManualClock", "assert_enqueued", "assert_not_enqueued", "inline", "on_memory", "override"]
    assert sorted(holdfast.testing.__all__) == names
    assert isinstance(holdfast.testing.inline, type), "the word is the block, not the module it is in"


def test_a_name_that_there_is_not_is_reported_as_usual():
    with pytest.raises(AttributeError, match="module 'holdfast' has no attribute 'Celery'"):
        _ = holdfast.Celery


def test_every_error_says_whether_the_call_may_be_repeated():
    safe = {name for name in ERRORS if getattr(holdfast, name).retry_safe}
    assert safe == {"QueueFull", "StoreLost", "StoreRefused", "StoreUnavailable", "OutcomeUnknown"}


def test_every_error_can_be_imported():
    assert len(ERRORS) > 10
    assert set(holdfast.__all__) >= ERRORS


UNWANTED = (
    "sqlite3",
    "holdfast.client.bulk",
    "holdfast.client.inspection",
    "holdfast.client.timeseries",
    "holdfast.schedules.service",
    "holdfast.sync.app",
    "cronsim",
    "zoneinfo",
    "holdfast.flows.builder",
    "holdfast.flows.service",
    "holdfast.worker",
    "typer",
    "rich",
    "click",
    "cloudpickle",
    "pydantic",
    "pytest",
    "hypothesis",
)


@pytest.mark.parametrize(
    "program",
    ["import holdfast", "from holdfast import Holdfast; app = Holdfast('memory://'); app.task(print, name='p')"],
    ids=["import", "an app on memory"],
)
def test_a_program_that_only_enqueues_does_not_pay_for_the_rest(program):
    code = f"import sys; {program}; print([name for name in {UNWANTED!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_importing_the_package_imports_only_the_version():
    code = "import sys; before = set(sys.modules); import holdfast; print(sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    ours = [name for name in eval(done.stdout) if name.startswith(("holdfast", "asyncio", "msgspec"))]
    assert ours == ["holdfast", "holdfast.version"]


def test_the_worker_is_imported_when_it_is_asked_for():
    code = "import holdfast, sys; holdfast.Worker; print('holdfast.worker' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


@pytest.mark.parametrize("as_before", ["enable", "disable"])
def test_the_garbage_collector_rests_during_an_import(as_before):
    code = (
        f"import asyncio, gc; gc.collect(); gc.{as_before}()\n"
        "seen = []; gc.callbacks.append(lambda *_: seen.append(1))\n"
        "from holdfast import Holdfast\n"
        "print(len(seen) // 2, gc.isenabled())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    collections, enabled = done.stdout.split()
    assert int(collections) <= 1  # when it is enabled again
    assert enabled == str(as_before == "enable")


def test_a_fork_during_an_import_leaves_the_garbage_collector_enabled():
    code = (
        "import gc, holdfast, os, threading\n"
        "begun, end, imported = threading.Event(), threading.Event(), holdfast.import_module\n"
        "def slowly(*names):\n"
        "    begun.set()\n"
        "    end.wait()\n"
        "    return imported(*names)\n"
        "holdfast.import_module = slowly\n"
        "thread = threading.Thread(target=lambda: holdfast.State)\n"
        "thread.start()\n"
        "begun.wait()\n"
        "if (pid := os.fork()) == 0:\n"
        "    os._exit(0 if gc.isenabled() else 1)\n"
        "code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])\n"
        "end.set()\n"
        "thread.join()\n"
        "print(code, gc.isenabled())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "True"]
