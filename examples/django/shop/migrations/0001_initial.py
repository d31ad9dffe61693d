from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    operations = [  # noqa: RUF012
        migrations.CreateModel(
            name="Order",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("item", models.CharField(max_length=100)),
                ("email", models.EmailField(max_length=254)),
                ("confirmed_at", models.DateTimeField(editable=False, null=True)),
            ],
        ),
    ]
