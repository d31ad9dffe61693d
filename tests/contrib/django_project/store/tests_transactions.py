"""Jobs and rows in one transaction."""

from django.db import connection, transaction
from django.test import TransactionTestCase

from holdfast import Flow
from holdfast.contrib.django import get_app
from holdfast.contrib.django.configuration import current
from store import tasks
from store.helpers import empty, work
from store.models import Order


class Undo(Exception):
    pass


class Transactions(TransactionTestCase):
    def stored(self) -> int:
        return len(get_app().sync.jobs(task="count", limit=1000).jobs)

    def setUp(self):
        empty()

    def test_a_rollback_leaves_no_job(self):
        with self.assertRaises(Undo), transaction.atomic():
            Order.objects.create(item="lamp")
            tasks.confirm.enqueue(1)
            tasks.count.sync.enqueue("lamp")
            get_app().sync.enqueue_many([tasks.count.call("lamp")] * 3)
            tasks.count.using(key="a", replace=True).sync.enqueue("lamp")
            raise Undo
        self.assertEqual((Order.objects.count(), self.stored()), (0, 0))

    def test_a_commit_stores_row_and_jobs_together(self):
        with transaction.atomic():
            Order.objects.create(item="lamp")
            handle = tasks.count.sync.enqueue("lamp")
            handles = get_app().sync.enqueue_many([tasks.count.call("lamp")] * 3)
            replaced = tasks.count.using(key="r", replace=True).sync.enqueue("lamp")
            if current().in_database:
                with connection.cursor() as cursor:  # written with Django's own connection
                    table = "holdfast_job" if connection.vendor == "sqlite" else "holdfast.job"
                    cursor.execute(f"SELECT count(*) FROM {table} WHERE id = %s", [handle.id])
                    self.assertEqual(cursor.fetchone()[0], 1)
        self.assertEqual(self.stored(), 5)
        self.assertEqual({one.job().state for one in (handle, *handles, replaced)}, {"queued"})

    def test_a_savepoint_that_is_rolled_back_takes_its_jobs_with_it(self):
        with transaction.atomic():
            tasks.count.sync.enqueue("outer")
            with self.assertRaises(Undo), transaction.atomic():
                tasks.count.sync.enqueue("inner")
                raise Undo
        self.assertEqual(self.stored(), 1)

    def test_a_given_connection_is_used(self):
        if not current().in_database:
            return  # the store is another one
        with self.assertRaises(Undo), transaction.atomic():
            tasks.count.using(connection=connection).sync.enqueue("lamp")
            raise Undo
        self.assertEqual(self.stored(), 0)

    def test_without_a_transaction_a_job_is_stored_at_once(self):
        self.assertEqual(tasks.count.sync.enqueue("lamp").job().state, "queued")

    def test_without_autocommit_a_job_is_part_of_the_open_transaction(self):
        if not current().in_database:
            return  # Django has no on_commit without autocommit
        transaction.set_autocommit(False)
        self.addCleanup(transaction.set_autocommit, True)
        tasks.count.sync.enqueue("lost")
        transaction.rollback()
        self.assertEqual(self.stored(), 0)
        tasks.count.sync.enqueue("lamp")
        transaction.commit()
        self.assertEqual(self.stored(), 1)

    def test_a_transaction_that_will_roll_back_takes_no_job(self):
        if not current().in_database:
            return  # Django discards what waits for the commit
        with transaction.atomic():
            with self.assertRaises(Undo), transaction.atomic(savepoint=False):
                raise Undo
            with self.assertRaises(transaction.TransactionManagementError):
                tasks.count.sync.enqueue("lamp")
        self.assertEqual(self.stored(), 0)

    def test_a_flow_is_stored_after_the_commit(self):
        flow = Flow()
        flow.add(tasks.count, "lamp")
        with self.assertRaises(Undo), transaction.atomic():
            get_app().sync.enqueue_flow(flow)
            raise Undo
        self.assertEqual(self.stored(), 0)
        with transaction.atomic():
            handle = get_app().sync.enqueue_flow(flow)
            self.assertEqual(self.stored(), 0)
        self.assertEqual([job.state for job in handle.jobs()], ["queued"])
        work()  # an unfinished flow cannot be deleted
