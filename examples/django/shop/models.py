from django.db import models


class Order(models.Model):
    """An order of one item. It is confirmed by a job, which is stored in the same transaction."""

    item = models.CharField(max_length=100)
    email = models.EmailField()
    confirmed_at = models.DateTimeField(null=True, editable=False)

    def __str__(self):
        return f"{self.item} for {self.email}"
