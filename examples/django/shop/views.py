from django.db import transaction
from django.forms import ModelForm
from django.shortcuts import redirect, render

from .models import Order
from .tasks import confirm


class OrderForm(ModelForm):
    class Meta:
        model = Order
        fields = ("item", "email")


def orders(request):
    """List the orders; as POST, place one."""
    form = OrderForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        with transaction.atomic():
            order = form.save()
            confirm.sync.enqueue(order.pk)  # stored with the order, or not at all
        return redirect("orders")
    return render(request, "shop/orders.html", {"form": form, "orders": Order.objects.order_by("-pk")[:20]})
