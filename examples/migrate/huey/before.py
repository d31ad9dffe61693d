from huey import SqliteHuey, crontab

huey = SqliteHuey(filename="huey.db", store_intermediate_errors=False)


@huey.task(retries=3, retry_delay=1, context=True)
def fetch(city, task):
    if task.retries == 3:
        raise ConnectionError("no answer")
    return len(city)


@huey.task()
def double(count):
    return 2 * count


@huey.periodic_task(crontab(minute="0", hour="3"))
@huey.lock_task("clean-up")
def clean_up(): ...


def main():
    later = fetch.schedule(("Oslo",), delay=1)
    both = huey.enqueue(fetch.s("Bergen").then(double))
    print("one:", later.get(blocking=True, timeout=30))
    print("both:", both.get(blocking=True, timeout=30))
