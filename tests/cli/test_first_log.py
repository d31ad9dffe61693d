"""The log in "The first five minutes" is, line by line, what a worker logs at its default level."""

import re
import signal
import subprocess
import sys
from pathlib import Path

from support.snippets import blocks_of, snippets_of

PAGE = "docs/start/first-five-minutes.md"
SOURCE = (Path(__file__).parents[2] / PAGE).read_text(encoding="utf-8")
VARYING = re.compile(r"^\d\d:\d\d:\d\d|\b(worker_id|job_id|version|pids|supervisor|waited|ran)=\S+")


def lines_of(text: str) -> list[str]:
    """The lines without what differs between runs. The processes of a start log in any order."""
    return sorted(VARYING.sub(lambda found: found[1] or "", line) for line in text.splitlines() if "=" in line)


def test_a_worker_logs_what_the_page_shows(terminal):
    (shown,) = (block.text for block in blocks_of(PAGE, SOURCE) if "worker_started" in block.text)
    for name, text in snippets_of(PAGE, SOURCE)[-1].files.items():
        (terminal.folder / name).write_text(text)
    command = next(line for line in shown.splitlines() if line.startswith("$ holdfast "))
    terminal.env["HOLDFAST_LOG_FORMAT"] = "pretty"
    worker = terminal.start(*command.split()[2:])
    done = subprocess.run([sys.executable, "shop.py"], cwd=terminal.folder, env=terminal.env, timeout=100, check=True)
    assert done.returncode == 0
    terminal.until(lambda: terminal.log().count("job_succeeded") == 2 and "workers_started" in terminal.log())
    worker.send_signal(signal.SIGINT)
    worker.wait(60)
    logged = [line for line in terminal.log().splitlines() if "worker_stopped" not in line]
    assert lines_of("\n".join(logged)) == lines_of(shown)
