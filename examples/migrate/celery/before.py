import os

from celery import Celery, chord

URL = os.environ.get("REDIS_URL", "redis://localhost")
app = Celery("before", broker=URL, backend=URL)


@app.task(bind=True, autoretry_for=(ConnectionError,), max_retries=4, retry_backoff=1)
def fetch(self, city):
    if self.request.retries == 0:
        raise ConnectionError("no answer")
    return len(city)


@app.task
def total(counts):
    return sum(counts)


if __name__ == "__main__":
    print("one:", fetch.apply_async(["Oslo"], countdown=1).get(timeout=30))
    print("all:", chord([fetch.s("Oslo"), fetch.s("Rome")])(total.s()).get(timeout=30))
