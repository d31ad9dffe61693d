from holdfast import Backoff, Context, Flow, Holdfast

app = Holdfast("sqlite:///jobs.db")


@app.task(max_attempts=4, retry=Backoff(base=1, factor=1, jitter=0))
def fetch(ctx: Context, city: str) -> int:
    if ctx.attempt == 1:
        raise ConnectionError("no answer")
    return len(city)


@app.task
def double(count: int) -> int:
    return 2 * count


@app.cron("0 3 * * *", overlap="skip")
def clean_up() -> None: ...


def main() -> None:
    later = fetch.using(delay=1).sync.enqueue("Oslo")
    flow = Flow("both")
    flow.chain(fetch.call("Bergen"), double)
    both = app.sync.enqueue_flow(flow)
    print("one:", later.result(timeout=30))
    print("both:", both.results(timeout=30))
