import os

import psycopg

from holdfast import Backoff, Context, Holdfast, limit

URL = os.environ.get("DATABASE_URL", "postgresql://localhost/shop")
app = Holdfast(URL)
every_second = Backoff(base=1, factor=1, jitter=0)


@app.task(queue="mail", max_attempts=4, retry=every_second, limit=limit(key="customer", concurrency=1))
def confirm(ctx: Context, order: int, customer: int) -> None:
    if ctx.attempt == 1:
        raise ConnectionError("no answer")


@app.cron("0 3 * * *", overlap="skip")
def clean_up() -> None: ...


def main() -> None:
    with app.sync, psycopg.connect(URL) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS orders (number INTEGER)")
        connection.execute("INSERT INTO orders VALUES (7)")
        job = confirm.using(connection=connection).sync.enqueue(7, customer=1)
        connection.commit()
        print("order 7:", job.wait(timeout=30).state)
