"""`python -m holdfast` is the `holdfast` command."""

from .cli.main import main

main()
