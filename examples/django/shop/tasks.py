from django.core.mail import send_mail
from django.utils import timezone

from holdfast.contrib.django import get_app

from .models import Order

app = get_app()


@app.task
def confirm(order_id: int) -> None:
    """Confirm an order by mail. A second run, after a crash, sends no second mail if the first was recorded."""
    order = Order.objects.get(pk=order_id)
    if order.confirmed_at is None:
        send_mail("Your order", f"Thank you for ordering {order.item}.", "shop@example.com", [order.email])
        order.confirmed_at = timezone.now()
        order.save()
