from django.db import transaction
from django.test import TestCase, TransactionTestCase

from holdfast import Worker
from holdfast.contrib.django.test import bench
from holdfast.testing import assert_enqueued, assert_not_enqueued

from .models import Order
from .tasks import app, confirm

ORDER = {"item": "lamp", "email": "ada@example.com"}


class OrderTests(TestCase):
    """What orders do, with a store in memory for each test."""

    def setUp(self):
        self.jobs = self.enterContext(bench())

    def test_an_order_is_confirmed_by_a_job(self):
        self.client.post("/", ORDER)
        order = Order.objects.get()
        assert_enqueued(confirm, order_id=order.pk)
        self.jobs.work()
        order.refresh_from_db()
        assert order.confirmed_at is not None

    def test_a_second_run_changes_nothing(self):
        order = Order.objects.create(**ORDER)
        confirm(order.pk)
        order.refresh_from_db()
        first = order.confirmed_at
        confirm.sync.enqueue(order.pk)
        self.jobs.work()
        order.refresh_from_db()
        assert order.confirmed_at == first

    def test_a_rollback_leaves_no_job(self):
        with transaction.atomic():
            self.client.post("/", ORDER)
            transaction.set_rollback(True)
        assert_not_enqueued(confirm)

    def test_an_invalid_order_leaves_no_job(self):
        self.assertContains(self.client.post("/", {"item": "lamp"}), "This field is required")
        assert_not_enqueued(confirm)


class StoreTests(TransactionTestCase):
    """The same in the database, with real commits."""

    def queued(self):
        return app.sync.stats().counts["queued"]

    def test_an_order_and_its_job_are_committed_together(self):
        before = self.queued()
        with transaction.atomic():
            self.client.post("/", ORDER)
            assert self.queued() == before
        assert self.queued() == before + 1
        Worker(app, until_idle=True).run_sync()
        assert Order.objects.get().confirmed_at is not None

    def test_a_rollback_removes_both(self):
        before = self.queued()
        with transaction.atomic():
            self.client.post("/", ORDER)
            transaction.set_rollback(True)
        assert self.queued() == before
        assert not Order.objects.exists()
