"""The tasks of the deployment examples; put your own in their place."""

from __future__ import annotations

from holdfast import Context, Holdfast

app = Holdfast()


@app.task(name="email.send", timeout=30)
async def send(ctx: Context, to: str) -> None:
    """Stands for real work."""
    ctx.log.info("sent to %s", to.partition("@")[2] or "nobody")
