from django_q.models import Schedule
from django_q.tasks import async_task, result, schedule


def confirm(order):
    return f"order {order} confirmed"


def clean_up(): ...


def shipped(task): ...


def main():
    schedule("before.clean_up", name="clean-up", schedule_type=Schedule.DAILY)
    task_id = async_task("before.confirm", 7, hook="before.shipped", group="orders", timeout=60)
    print(result(task_id, wait=30_000))
