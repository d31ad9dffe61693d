"""URLs of the dashboard: `path("dashboard/", include("holdfast.contrib.django.urls"))`."""

from django.urls import path

from .dashboard import page, resource

app_name = "holdfast"
urlpatterns = [path("", page, name="dashboard"), path("<path:path>", resource, name="resource")]
