import os
import time

import psycopg
from procrastinate import App, PsycopgConnector, RetryStrategy

URL = os.environ.get("DATABASE_URL", "postgresql://localhost/shop")
app = App(connector=PsycopgConnector(conninfo=URL))


@app.task(queue="mail", retry=RetryStrategy(max_attempts=3, wait=1), pass_context=True)
def confirm(context, order):
    if context.job.attempts == 0:
        raise ConnectionError("no answer")


@app.periodic(cron="0 3 * * *")
@app.task(queueing_lock="clean-up")
def clean_up(timestamp): ...


def main():
    with app.open(), psycopg.connect(URL) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS orders (number INTEGER)")
        connection.execute("INSERT INTO orders VALUES (7)")
        job = confirm.configure(connection=connection, lock="customer-1").defer(order=7)
        connection.commit()
        while (status := app.job_manager.get_job_status(job)).value in ("todo", "doing"):
            time.sleep(0.1)
        print("order 7:", status.value)
