from holdfast.contrib.django import get_app

app = get_app()


@app.task(timeout=60, tags=["orders"])
def confirm(order: int) -> str:
    return f"order {order} confirmed"


@app.cron("@daily")
def clean_up() -> None: ...


@app.task
def shipped(job_id: str) -> None: ...


def main() -> None:
    job = confirm.using(on_success=shipped, on_dead=shipped).sync.enqueue(7)
    print(job.result(timeout=30))
