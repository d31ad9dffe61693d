"""`manage.py holdfast …`: the command line of Holdfast with the app of the project."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from .....core.errors import ConfigError

APP = "holdfast.contrib.django:app"


class Command(BaseCommand):
    help = "The command line of Holdfast: worker, serve, status, … (`manage.py holdfast --help` lists all)."
    requires_system_checks = ()

    def run_from_argv(self, argv: list[str]) -> None:
        """Pass everything after `holdfast` on: Django's own options would hide those of the commands."""
        from .....cli.main import run  # late: Django imports this module for `manage.py help`

        run(lambda: _command(argv[2:], f"{Path(argv[0]).name} holdfast"))

    def add_arguments(self, parser: CommandParser) -> None:
        """For `call_command("holdfast", "status")`."""
        parser.add_argument("arguments", nargs="*")

    def handle(self, *_: Any, **options: Any) -> None:
        """For `call_command`."""
        self.run_from_argv([sys.argv[0], "holdfast", *options["arguments"]])


def _command(given: list[str], name: str) -> None:
    from .....cli.commands import app

    if any(one.partition("=")[0] == "--url" for one in given):
        raise ConfigError(
            f"`{name}` uses the store of the Django settings; to use another store, run `holdfast` itself with --url"
        )
    own = any(one.partition("=")[0] in ("-A", "--app") for one in given)
    app(given if own else ["-A", APP, *given], prog_name=name)
