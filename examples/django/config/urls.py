from django.contrib import admin
from django.urls import include, path
from shop.views import orders

urlpatterns = [
    path("", orders, name="orders"),
    path("admin/", admin.site.urls),
    path("dashboard/", include("holdfast.contrib.django.urls")),
]
