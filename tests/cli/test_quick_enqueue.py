"""The usual options of `holdfast enqueue`, read without typer: the same parameters as with it, or None."""

import inspect

import pytest
from typer.testing import CliRunner

from holdfast.cli import commands
from holdfast.cli import enqueue as command
from holdfast.cli.quick_enqueue import FLAGS, LISTS, NAMES, NUMBERS, quick_parameters

DEFAULTS = {name: one.default for name, one in inspect.signature(command.enqueue).parameters.items()}

READ = [
    "-- echo hi",
    "-- echo --queue x -- -q",
    "--",
    "-",
    '{"command":"true"}',
    '--json {"command":"true"} --queue=mail',
    "-q mail --key k --tag a --tag=b --env A=1 --env=B=2 -- true",
    "--task add --args [1,2] --priority 3 --max-retries 2",
    "--max-attempts=7 --replace --debounce 5s --debounce-max=1m --url sqlite:///x.db one two",
    "--at 2030-01-31T12:00:00Z --expires 15m --on-success a --on-dead b --cwd /tmp --id j --delay 2",
    "--timeout 3 --unique 5",
]
LEFT = [
    "--help", "-h", "--queue", "--queue -q", "--priority x", "--priority -3", "--priority 1_0", "--file jobs.jsonl",
    "-A shop:app -- true", "--unknown 1", "-qmail -- true", "-q=mail -- true", "--json=1 -- true", "--que mail -- true",
]  # fmt: skip


@pytest.fixture
def by_typer(monkeypatch):
    """The parameters that typer reads from a command line."""
    found = []
    monkeypatch.setattr(command, "submit", found.append)

    def read(words):
        result = CliRunner().invoke(commands.app, words)
        assert result.exit_code == 0, result.output
        return found.pop()

    return read


@pytest.mark.parametrize("line", READ)
def test_parameters_are_those_of_typer(line, by_typer):
    words = ["enqueue", *line.split()]
    found = quick_parameters(words)
    assert found is not None
    assert {**DEFAULTS, **found} == by_typer(words)


@pytest.mark.parametrize("line", LEFT)
def test_all_else_is_left_to_typer(line):
    assert quick_parameters(["enqueue", *line.split()]) is None


def test_other_commands_and_completion_are_left_to_typer(monkeypatch):
    assert quick_parameters(["status"]) is None
    assert quick_parameters([]) is None
    monkeypatch.setenv("_HOLDFAST_COMPLETE", "complete_bash")
    assert quick_parameters(["enqueue", "--", "true"]) is None


def test_every_option_of_the_command_is_read_except_two():
    known = {*NAMES.values(), *NUMBERS.values(), *LISTS.values(), *FLAGS.values()}
    assert {*DEFAULTS} - known == {"words", "file"}
