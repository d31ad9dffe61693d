"""A job of many hours in a process of its own: killable, limited, and behind its last checkpoint after a crash.

holdfast enqueue -A film:app --task encode --args '["holiday.mov"]'
holdfast worker start -A film:app --foreground --drain
"""

import time

from holdfast import Context, Holdfast

app = Holdfast("sqlite:///film.db")


@app.task(run_in="isolated", memory="2GB", timeout=86_400, max_attempts=3)
def encode(ctx: Context, film: str, parts: int = 20) -> str:
    done = ctx.last_checkpoint or 0
    for part in range(done, parts):
        time.sleep(0.05)  # the work of an hour
        ctx.checkpoint(part + 1)
        ctx.progress(part + 1, parts, film)
        print(f"{film}: part {part + 1} of {parts}")
    return f"{film}: {parts} parts, the first {done} by an earlier attempt"
