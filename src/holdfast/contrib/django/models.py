"""The model behind the admin's pages and the permissions. It has no table: jobs are in Holdfast's own."""

from __future__ import annotations

from typing import ClassVar

from django.db import models


class NoRows(models.Manager):
    """Finds nothing, so that commands that read all models (`dumpdata`) need no table."""

    def get_queryset(self) -> models.QuerySet:
        return super().get_queryset().none()


class Job(models.Model):
    """A job, as Django's admin knows it: by its id."""

    id = models.CharField(primary_key=True, max_length=512)
    objects = NoRows()

    class Meta:
        app_label = "holdfast"
        managed = False
        base_manager_name = "objects"
        default_permissions = ("view",)
        permissions: ClassVar = [
            ("retry_job", "Can retry jobs in the admin"),
            ("cancel_job", "Can cancel jobs in the admin"),
            ("operate", "Can change jobs, queues, schedules and settings in the dashboard"),
        ]

    def __str__(self) -> str:
        return str(self.id)
