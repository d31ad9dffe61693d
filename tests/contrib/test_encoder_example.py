"""The media encoder of `examples/encoder`: a whole film, through a kill -9 of everything that encodes it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.terminal import Terminal, kill

EXAMPLE = Path(__file__).parents[2] / "examples" / "encoder"
PARTS = 20


@pytest.fixture
def studio(tmp_path):
    """A terminal in a copy of the example."""
    for file in EXAMPLE.iterdir():
        if file.is_file():
            shutil.copy(file, tmp_path / file.name)
    terminal = Terminal(tmp_path)
    terminal.env |= {"HOLDFAST_URL": f"sqlite:///{tmp_path}/encoder.db", "ENCODE_SECONDS": "0.1"}
    yield terminal
    terminal.close()


@pytest.mark.extended
def test_a_film_is_finished_after_a_kill_of_worker_and_encoder(studio):
    studio("worker", "start", "-A", "encoder:app", "--shell")
    adding = [sys.executable, "encoder.py", "holiday.mov"]
    flow = subprocess.run(
        adding, cwd=studio.folder, env=studio.env, check=True, capture_output=True, text=True
    ).stdout.strip()
    encoding = f"{flow}.0"
    job = studio.until(lambda: (job := studio.job(encoding))["checkpoint"] and job["checkpoint"] > 2 and job)
    [worker] = studio.workers()
    for pid in (job["pid"], worker["pid"]):
        kill(pid)
    studio.until(lambda: studio.store.flows.status(flow).ended == "succeeded")
    job = studio.job(encoding)
    assert [attempt["outcome"] for attempt in job["history"]] == ["lost", "succeeded"]
    begun = int(job["result"].split("the first ")[1].split()[0])
    assert 2 < begun < PARTS
    printed = studio.printed(encoding)
    # Only the part that was being encoded at the kill may have been begun twice. The last lines are lost.
    times = [printed.count(f"encoding part {part} of") for part in range(PARTS)]
    assert max(times[:begun]) == 1
    assert times[begun + 1 :] == [1] * (PARTS - begun - 1)
    assert job["progress"] == {"done": PARTS, "total": PARTS, "note": "holiday.mov"}
    film = (studio.folder / "holiday.mov.mp4").read_text()
    assert film == "".join(f"part {part}\n" for part in range(PARTS))
    assert studio.job(f"{flow}.3")["result"] == "holiday.mov.mp4 with holiday.mov.jpg"
    studio("worker", "stop")
