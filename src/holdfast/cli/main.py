"""The `holdfast` command: runs it and prints its errors.

Exit codes: 0 success, 1 the operation was refused, 2 invalid command or configuration, 3 the store is unavailable.
"""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Callable

from ..core.errors import ConfigError, HoldfastError, InvalidJob, MissingExtra, OutcomeUnknown, StoreUnavailable
from . import garbage


def main() -> None:
    """Run the command."""
    garbage.postpone()
    try:
        run(_command)
    finally:
        gc.freeze()  # the collections while the interpreter exits would free nothing that its exit does not


def _command() -> None:
    from .quick_enqueue import quick_parameters

    if (parameters := quick_parameters(sys.argv[1:])) is not None:
        from .submit import submit

        submit(parameters)
        return
    from .commands import app  # late: the imports are most of the objects

    app()


def run(work: Callable[[], object]) -> None:
    """Run a command's work; a HoldfastError is printed as one line, without a traceback."""
    try:
        work()
    except HoldfastError as error:
        from .printing import error_message

        text = "; ".join([f"holdfast: {error_message(error)}", *getattr(error, "__notes__", ())])
        print(text, file=sys.stderr)
        sys.exit(exit_code(error))
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one must not interrupt the exit
        sys.exit(130)
    except BrokenPipeError:  # the reader of the pipe, such as head, has exited
        sys.stderr.close()
        sys.exit(0)


def exit_code(error: HoldfastError) -> int:
    """The exit code of an error."""
    if isinstance(error, ConfigError | InvalidJob | MissingExtra):
        return 2
    return 3 if isinstance(error, StoreUnavailable | OutcomeUnknown) else 1
