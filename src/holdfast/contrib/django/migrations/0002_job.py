"""The model of the admin, which has permissions but no table."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies: ClassVar = [("holdfast", "0001_initial")]
    operations: ClassVar = [
        migrations.CreateModel(
            name="Job",
            fields=[("id", models.CharField(max_length=512, primary_key=True, serialize=False))],
            options={
                "permissions": [
                    ("retry_job", "Can retry jobs in the admin"),
                    ("cancel_job", "Can cancel jobs in the admin"),
                    ("operate", "Can change jobs, queues, schedules and settings in the dashboard"),
                ],
                "managed": False,
                "default_permissions": ("view",),
                "base_manager_name": "objects",
            },
        )
    ]
