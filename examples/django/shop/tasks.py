from django.utils import timezone

from holdfast.contrib.django import get_app

from .models import Order

app = get_app()


@app.task
def confirm(order_id: int) -> None:
    """Confirm an order. A second run, after a crash, changes nothing."""
    order = Order.objects.get(pk=order_id)
    if order.confirmed_at is None:
        order.confirmed_at = timezone.now()
        order.save()
