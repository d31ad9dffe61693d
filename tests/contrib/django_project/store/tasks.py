"""Tasks of django.tasks and of the app, of every kind."""

import os
import threading

import django
from django.db import connection

from holdfast import Backoff, Context, limit
from holdfast.contrib.django import get_app
from store.models import Order

if django.VERSION >= (6, 0):
    from django.tasks import task
else:
    from django_tasks import task

app = get_app()
threads: list[int] = []


class OutOfStock(Exception):
    pass


@task
def confirm(order_id, state="confirmed"):
    threads.append(threading.get_ident())
    Order.objects.filter(pk=order_id).update(state=state)
    return {"order": order_id, "state": state}


@task(queue_name="mail", priority=10, takes_context=True)
async def mail(context, order_id):
    changed = await Order.objects.filter(pk=order_id).aupdate(state="mailed")
    return [changed, context.attempt, context.task_result.id]


@task(max_attempts=1)
def refuse(order_id):
    raise OutOfStock(f"order {order_id}:\nnone left")


@task(retry=Backoff(0, jitter=0))
def flaky(first):
    raise (ValueError if first else OutOfStock)("again")


@task(unique="until_end", limit=limit(concurrency=1, key="order_id"), timeout=60, run_in="process")
def pack(order_id: int, *boxes, **labels):
    return [order_id, list(boxes), labels, os.getpid()]


@task(max_attempts=1)
def unstorable():
    return object()


@app.task
def count(ctx: Context, item: str) -> int:
    return Order.objects.filter(item=item).count()


@app.task
async def count_async(item: str) -> int:
    return await Order.objects.filter(item=item).acount()


def double(number: int) -> int:
    return 2 * number


def backend() -> int:
    """The process of the database that serves this thread."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return cursor.fetchone()[0]


@app.task(max_attempts=1)
def served_by() -> int:
    return backend()


@app.task(max_attempts=1, run_in="process")
def served_in_process() -> int:
    return backend()


@app.task(max_attempts=1, run_in="isolated")
def served_in_isolation() -> int:
    return backend()


@app.task(max_attempts=1)
async def served_async() -> int:
    from asgiref.sync import sync_to_async

    return await sync_to_async(backend)()
