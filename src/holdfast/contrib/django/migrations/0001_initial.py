"""Creates Holdfast's tables."""

from django.db import migrations

from ..schema import MigrateStore


class Migration(migrations.Migration):
    atomic = False
    operations = (MigrateStore(),)
