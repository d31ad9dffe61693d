from holdfast import Backoff, Context, Flow, Holdfast

app = Holdfast("sqlite:///jobs.db")


def resize(ctx: Context, photo: str, width: int) -> str:
    ctx.update_meta(width=width)
    return f"{photo}-{width}"


def publish(album: str) -> str:
    return f"{album} is online"


def main() -> None:
    four_times = app.using(max_attempts=4, retry=Backoff(base=5, factor=1))
    flow = Flow("album")
    photos = [flow.add(four_times.call(resize, name, 640)) for name in ("cat", "dog")]
    album = flow.add(app.call(publish, "pets")).after(*photos)
    stored = app.sync.enqueue_flow(flow)
    later = app.using(delay=1, timeout=60).sync.enqueue(resize, "bird", 320)
    for job in (*map(stored.handle, (*photos, album)), later):
        print(job.result(timeout=30))
