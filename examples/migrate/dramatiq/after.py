from holdfast import Backoff, Flow, Holdfast

app = Holdfast("sqlite:///jobs.db")


@app.task(queue="letters", max_attempts=4, retry=Backoff(base=0.5), timeout=60)
def write(name: str) -> str:
    return f"Dear {name}"


@app.task
def sign(text: str) -> str:
    return f"{text}, thank you"


if __name__ == "__main__":
    flow = Flow("letter")
    last = flow.chain(write.call("Ada"), sign)
    letter = app.sync.enqueue_flow(flow).handle(last)
    later = write.using(delay=1).sync.enqueue("Grace")
    print(letter.result(timeout=30))
    print(later.result(timeout=30))
