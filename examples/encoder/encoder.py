"""A media encoder: shell jobs for single commands, and a task with checkpoints for the hours of encoding.

python encoder.py holiday.mov                                          enqueue a film
holdfast worker start -A encoder:app --shell --foreground --drain      run its jobs
"""

import shlex
import subprocess
import sys
from datetime import timedelta

from holdfast import Context, Flow, Holdfast

app = Holdfast("sqlite:///encoder.db")


@app.task(run_in="isolated", memory="2GB", timeout=timedelta(days=1), max_attempts=3)
def encode(ctx: Context, film: str, parts: int) -> str:
    """Encode a film in a process of its own. An attempt begins with the first part that no earlier one finished."""
    done = ctx.last_checkpoint or 0
    ctx.log.info("encoding %s from part %d", film, done)
    for part in range(done, parts):
        subprocess.run(["sh", "encode.sh", "part", film, str(part)], check=True)
        ctx.checkpoint(part + 1)
        ctx.progress(part + 1, parts, film)
    return f"{parts} parts of {film}, the first {done} by an earlier attempt"


@app.task
def publish(film: str) -> str:
    return f"{film}.mp4 with {film}.jpg"


def add_film(film: str, parts: int = 20) -> str:
    """Store the jobs of a film: encode it, join its parts and make a picture, publish it. Returns the flow's id."""
    flow = Flow("film")
    encoded = flow.add(encode, film, parts)
    joined = flow.add(shell("join", film, str(parts))).after(encoded)
    picture = flow.add(shell("thumbnail", film))
    flow.add(publish, film).after(joined, picture)
    return app.sync.enqueue_flow(flow).id


def shell(*words: str):
    """A shell job of the encoder."""
    return app.call("shell", command=shlex.join(["sh", "encode.sh", *words]))


if __name__ == "__main__":
    print(add_film(sys.argv[1]))
