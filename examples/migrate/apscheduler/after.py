from holdfast import Holdfast, Worker

app = Holdfast("sqlite:///jobs.db")
worker = Worker(app)
ticks: list[str] = []


@app.cron("0 9 * * *", tz="Europe/Oslo", args=["north"], catch_up=1)
def report(region: str) -> None: ...


@app.cron(every=1, args=["tick"], overlap="skip")
def tick(word: str) -> None:
    ticks.append(word)
    print(word, len(ticks))
    if len(ticks) == 2:
        worker.stop()


if __name__ == "__main__":
    worker.run_sync()
