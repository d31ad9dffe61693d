"""`manage.py holdfast …`: the command line of Holdfast with the app of the project."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from .....core.errors import ConfigError

APP = "holdfast.contrib.django:app"


class Command(BaseCommand):
    help = "The command line of Holdfast: worker, serve, status, … (`manage.py holdfast --help` lists all)."
    requires_system_checks = ()

    def run_from_argv(self, argv: list[str]) -> None:
        """Pass everything after `holdfast` on: Django's own options would hide those of the commands."""
        from .....cli.main import run  # late: Django imports this module for `manage.py help`

        run(lambda: _command(_without_defaults(argv[2:]), argv[0]))

    def add_arguments(self, parser: CommandParser) -> None:
        """For `call_command("holdfast", "status")`."""
        parser.add_argument("arguments", nargs="*")

    def handle(self, *_: Any, **options: Any) -> None:
        """For `call_command`, which does not end the program."""
        try:
            self.run_from_argv([sys.argv[0], "holdfast", *options["arguments"]])
        except SystemExit as ended:
            if ended.code:
                raise CommandError(f"holdfast ended with exit code {ended.code}", returncode=int(ended.code)) from None


def _command(given: list[str], program: str) -> None:
    from .....cli.commands import app

    name = f"{Path(program).name} holdfast"
    if any(one.partition("=")[0] == "--url" for one in given):
        raise ConfigError(
            f"`{name}` does not take --url: it uses the store of the Django settings. For another store, run `holdfast`"
            " itself with --url"
        )
    _share_path(str(Path(program).resolve().parent))
    own = any(one.partition("=")[0] in ("-A", "--app") for one in given)
    app(given if own else ["-A", APP, *given], prog_name=name)


def _without_defaults(given: list[str]) -> list[str]:
    """The words without Django's `--settings` and `--pythonpath`, which Django has applied."""
    if not any(one.partition("=")[0] in ("--settings", "--pythonpath") for one in given):
        return given
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--settings")
    parser.add_argument("--pythonpath")
    return parser.parse_known_args(given)[1]


def _share_path(folder: str) -> None:
    """Let the processes of workers import the project, too, wherever `manage.py` was started."""
    known = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    new = [path for path in dict.fromkeys([sys.path[0], folder]) if path and path in sys.path and path not in known]
    os.environ["PYTHONPATH"] = os.pathsep.join([*new, *known])
