import subprocess
from pathlib import Path

import encoder
import pytest


@pytest.fixture
def holdfast_app():
    return encoder.app


@pytest.fixture
def film(tmp_path, monkeypatch):
    """A film in a folder of its own, and an encoder that takes no time."""
    monkeypatch.setenv("ENCODE_SECONDS", "0")
    return str(tmp_path / "holiday.mov")


def test_a_failed_part_is_encoded_again_and_no_finished_one(holdfast_bench, film):
    obstacle = Path(f"{film}.2.tmp")
    obstacle.mkdir()  # in place of the file that the encoder wants to write
    handle = encoder.encode.sync.enqueue(film, 4)
    holdfast_bench.work()
    job = handle.job()
    assert (job.state, job.checkpoint, job.progress.done, job.progress.total) == ("failed", 2, 2, 4)
    obstacle.rmdir()
    holdfast_bench.advance(60)
    holdfast_bench.work()
    assert handle.result() == f"4 parts of {film}, the first 2 by an earlier attempt"
    printed = b"".join(piece.data for piece in handle.output()).decode()
    assert [printed.count(f"encoding part {part} ") for part in range(4)] == [1, 1, 2, 1]


def test_the_jobs_of_a_film(holdfast_bench):
    flow = encoder.app.sync.flows.handle(encoder.add_film("a film.mov", 3))
    assert [(job.task, job.state) for job in flow.jobs()] == [
        ("encode", "queued"),
        ("shell", "blocked"),
        ("shell", "queued"),
        ("publish", "blocked"),
    ]
    assert flow.handle(1).job().payload["command"] == "sh encode.sh join 'a film.mov' 3"


def test_the_script_joins_the_parts_in_order(film):
    for part in range(11):
        subprocess.run(["sh", "encode.sh", "part", film, str(part)], check=True)
    subprocess.run(["sh", "encode.sh", "join", film, "11"], check=True)
    assert Path(f"{film}.mp4").read_text() == "".join(f"part {part}\n" for part in range(11))
