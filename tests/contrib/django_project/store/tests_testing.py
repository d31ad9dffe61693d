"""Tests of a project: nothing runs, everything runs at once, or the test says when."""

import threading

from django.db import transaction
from django.db.models.signals import post_delete
from django.test import TestCase, TransactionTestCase, override_settings

from holdfast import JobFailed
from holdfast.contrib.django.compat import TaskResultDoesNotExist
from holdfast.contrib.django.test import bench
from holdfast.testing import assert_enqueued, assert_not_enqueued
from store import tasks
from store.models import Order

IMMEDIATE = override_settings(HOLDFAST={"IMMEDIATE": True})


class Undo(Exception):
    pass


class Plain(TestCase):
    def test_a_job_is_part_of_the_transaction_of_the_test(self):
        result = tasks.confirm.enqueue(1)
        with transaction.atomic():
            tasks.count.sync.enqueue("lamp")
        with self.assertRaises(TaskResultDoesNotExist):
            result.refresh()

    async def test_also_in_an_async_test(self):
        await tasks.confirm.aenqueue(1)


class Immediate(TestCase):
    @classmethod
    def setUpTestData(cls):
        cls.order = Order.objects.create(item="lamp")

    @IMMEDIATE
    def test_a_task_runs_in_the_thread_and_the_transaction_of_the_test(self):
        tasks.threads.clear()
        with transaction.atomic():
            result = tasks.confirm.enqueue(self.order.pk)
        self.assertEqual(result.return_value, {"order": self.order.pk, "state": "confirmed"})
        self.assertEqual(Order.objects.get().state, "confirmed")
        self.assertEqual(tasks.threads, [threading.get_ident()])

    @IMMEDIATE
    def test_an_async_task_sees_the_transaction_too(self):
        self.assertEqual(tasks.mail.enqueue(self.order.pk).return_value[:2], [1, 1])
        self.assertEqual(tasks.count_async.sync.enqueue("lamp").result(), 1)

    @IMMEDIATE
    def test_a_failed_task_is_a_failed_result(self):
        result = tasks.refuse.enqueue(1)
        self.assertEqual((result.status, result.errors[0].exception_class), ("FAILED", tasks.OutOfStock))

    @IMMEDIATE
    async def test_in_an_async_test(self):
        self.assertEqual((await tasks.mail.aenqueue(self.order.pk)).return_value[0], 1)
        self.assertEqual((await tasks.confirm.aenqueue(self.order.pk)).status, "SUCCESSFUL")
        await self.order.arefresh_from_db()
        self.assertEqual(self.order.state, "confirmed")

    def test_afterwards_the_app_has_its_own_store_again(self):
        self.assertEqual(tasks.confirm.enqueue(self.order.pk).status, "READY")


class OnABench(TestCase):
    def test_work_runs_what_is_due_in_the_transaction_of_the_test(self):
        order = Order.objects.create(item="lamp")
        with bench() as made:
            result = tasks.confirm.enqueue(order.pk)
            assert_enqueued(tasks.confirm.app_task, order_id=order.pk)
            tasks.mail.using(delay=60).enqueue(order.pk)
            made.work()
            order.refresh_from_db()
            self.assertEqual((order.state, tasks.confirm.get_result(result.id).status), ("confirmed", "SUCCESSFUL"))
            made.advance(60)
            made.work()
            order.refresh_from_db()
            self.assertEqual(order.state, "mailed")
            tasks.refuse.enqueue(1)
            with self.assertRaisesMessage(JobFailed, "none left"):
                made.work()

    def test_jobs_of_a_rolled_back_block_are_not_enqueued(self):
        with bench():
            with self.assertRaises(Undo), transaction.atomic():
                tasks.count.sync.enqueue("lost")
                raise Undo
            with transaction.atomic():
                with transaction.atomic():
                    tasks.count.sync.enqueue("lamp")
                assert_not_enqueued(tasks.count)
            assert_enqueued(tasks.count, "lamp")
            assert_not_enqueued(tasks.count, "lost")

    def test_jobs_of_a_block_without_savepoint_are_enqueued(self):
        def receive(**_):
            tasks.count.sync.enqueue("lamp")

        order = Order.objects.create(item="lamp")
        with bench():
            post_delete.connect(receive, sender=Order)
            self.addCleanup(post_delete.disconnect, receive, sender=Order)
            order.delete()  # calls the receiver in such a block
            assert_enqueued(tasks.count, "lamp")


class OnABenchWithCommits(TransactionTestCase):
    def test_work_runs_what_was_committed(self):
        order = Order.objects.create(item="lamp")
        with bench() as made:
            with transaction.atomic():
                tasks.confirm.enqueue(order.pk)
                assert_not_enqueued(tasks.confirm.app_task)
            made.work()
        order.refresh_from_db()
        self.assertEqual(order.state, "confirmed")

    @IMMEDIATE
    def test_at_once(self):
        order = Order.objects.create(item="lamp")
        self.assertEqual(tasks.confirm.enqueue(order.pk).status, "SUCCESSFUL")
