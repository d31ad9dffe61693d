from holdfast import Backoff, Context, Flow, Holdfast

app = Holdfast("sqlite:///jobs.db")


@app.task(max_attempts=5, retry=Backoff(base=0.5, jitter=0.5))
def fetch(ctx: Context, city: str) -> int:
    if ctx.attempt == 1:
        raise ConnectionError("no answer")
    return len(city)


@app.task
def total(counts: list[int]) -> int:
    return sum(counts)


if __name__ == "__main__":
    print("one:", fetch.using(delay=1).sync.enqueue("Oslo").result(timeout=30))
    flow = Flow("cities")
    last = flow.add(total, [flow.add(fetch, "Oslo"), flow.add(fetch, "Rome")])
    print("all:", app.sync.enqueue_flow(flow).handle(last).result(timeout=30))
