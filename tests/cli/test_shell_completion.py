"""Completion in a shell: states, and the queues, tasks and job ids of the store that the command line names."""

import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = str(Path(sys.executable).parent / "holdfast")
APP = """
print("an application may print")
from holdfast import Holdfast
app = Holdfast("sqlite:///shop.db")

@app.task
def ship(order: int) -> None: ...
"""
BASH = """
eval "$(_HOLDFAST_COMPLETE=source_bash holdfast)"
offers() { COMP_WORDS=(holdfast "$@"); COMP_CWORD=$(($# )); _holdfast_completion holdfast; echo "${COMPREPLY[@]}"; }
"""


@pytest.fixture
def shell(terminal):
    """Runs lines of bash in which `offers WORDS…` prints what the completion of the last word offers."""
    terminal.env["PATH"] = f"{Path(COMMAND).parent}:{terminal.env['PATH']}"

    def run(lines: str) -> list[str]:
        done = subprocess.run(
            ["bash", "-c", BASH + lines], cwd=terminal.folder, env=terminal.env, capture_output=True, text=True,
            check=False, timeout=100,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return done.stdout.splitlines()

    return run


def test_bash_completes_states_and_ids(terminal, shell):
    terminal.store.using(id="job-1").enqueue("noop")
    # Until, because on a busy machine completion gives up, and offers nothing.
    terminal.until(lambda: shell("offers list --state s; offers show jo") == ["scheduled succeeded", "job-1"])


@pytest.mark.extended
def test_bash_completes_queues_and_tasks(terminal, shell):
    terminal.store.using(queue="mail").enqueue("noop")
    (terminal.folder / "shop.py").write_text(APP)
    terminal.until(lambda: shell("offers list --queue ''; offers list --task ''") == ["mail", "noop"])
    terminal.until(lambda: shell("offers -A shop:app enqueue --task ''") == ["noop ship"])


@pytest.mark.extended
def test_completion_of_a_missing_store_offers_nothing_and_creates_nothing(terminal, shell):
    assert shell("offers show ''; offers --url sqlite:///other.db pause ''; offers show --url nonsense ''") == [""] * 3
    assert not list(terminal.folder.glob("*.db"))


@pytest.mark.extended
@pytest.mark.parametrize(
    ("name", "more", "expected"),
    [
        ("zsh", {}, '_arguments \'*: :(("job-1":"queued, noop"))\''),
        ("fish", {"_TYPER_COMPLETE_FISH_ACTION": "get-args"}, "job-1\tqueued, noop"),
    ],
)
def test_zsh_and_fish_get_descriptions_too(terminal, name, more, expected):
    terminal.store.using(id="job-1").enqueue("noop")
    env = terminal.env | {"_HOLDFAST_COMPLETE": f"complete_{name}", "_TYPER_COMPLETE_ARGS": "holdfast show "} | more

    def offered() -> str:
        return subprocess.run(
            [COMMAND], cwd=terminal.folder, env=env, capture_output=True, text=True, check=False, timeout=100
        ).stdout.strip()

    terminal.until(lambda: offered() == expected)


@pytest.mark.extended
def test_completion_gives_up_on_a_store_that_does_not_answer(terminal, shell):
    (terminal.folder / "slow.py").write_text("import time\ntime.sleep(60)\n")
    assert shell("offers -A slow:app show ''; echo still here") == ["", "still here"]
