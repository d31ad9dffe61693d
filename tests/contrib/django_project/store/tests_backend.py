"""Every documented call of django.tasks. The jobs run in workers of this process, on the project's database."""

import asyncio
import pickle
from datetime import UTC, datetime
from unittest import mock

from django.test import SimpleTestCase, TransactionTestCase, modify_settings, override_settings

from holdfast import InvalidJob
from holdfast.contrib.django import HoldfastBackend, get_app
from holdfast.contrib.django.compat import (
    InvalidTask,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_enqueued,
    task_finished,
    task_started,
)
from store import tasks
from store.helpers import empty, work
from store.models import Order

LATER = datetime(2100, 1, 1, tzinfo=UTC)


class Declaring(SimpleTestCase):
    def test_every_capability_is_supported(self):
        backend = tasks.confirm.get_backend()
        self.assertIsInstance(backend, HoldfastBackend)
        flags = ("supports_defer", "supports_async_task", "supports_get_result", "supports_priority")
        self.assertTrue(all(getattr(backend, flag) for flag in flags))

    def test_options_of_the_decorator_and_the_backend_are_those_of_the_app_task(self):
        packed = tasks.pack.app_task
        self.assertEqual((packed.run_in, packed.options.unique, packed.options.timeout), ("process", "until_end", 60))
        self.assertEqual((packed.options.max_attempts, tasks.refuse.app_task.options.max_attempts), (2, 1))
        self.assertEqual((tasks.mail.app_task.options.queue, tasks.mail.app_task.options.priority), ("mail", -10))

    def test_the_backend_needs_the_django_app(self):
        self.assertEqual(tasks.confirm.get_backend().check(), [])
        with modify_settings(INSTALLED_APPS={"remove": "holdfast.contrib.django"}):
            self.assertEqual([one.id for one in tasks.confirm.get_backend().check()], ["holdfast.E002"])

    def test_an_unknown_option_is_refused(self):
        with self.assertRaisesMessage(InvalidTask, "unknown options: max_atempts; known ones: "):
            tasks.confirm.using(max_atempts=3)
        with self.assertRaisesMessage(InvalidJob, "timeout"):
            tasks.confirm.using(timeout=-1).enqueue(1)

    def test_an_unknown_queue_and_a_wrong_priority_are_refused(self):
        for wrong in ({"queue_name": "elsewhere"}, {"priority": 101}, {"run_after": LATER.replace(tzinfo=None)}):
            with self.subTest(wrong), self.assertRaises(InvalidTask):
                tasks.confirm.using(**wrong)

    def test_a_task_can_be_pickled_copied_and_called(self):
        self.assertEqual(tasks.pack.call(1, "a"), tasks.pack.func(1, "a"))
        self.assertEqual(tasks.pack.using(priority=5).using(key="k").priority, 5)
        self.assertEqual(tasks.pack.using(key="k").options["key"], "k")
        self.assertEqual(len({tasks.pack, tasks.pack.using(priority=5), tasks.pack}), 2)
        if hasattr(type(tasks.pack), "_reconstruct"):
            self.assertEqual(pickle.loads(pickle.dumps(tasks.pack)), tasks.pack)


class Running(TransactionTestCase):
    def setUp(self):
        empty()
        self.order = Order.objects.create(item="lamp")
        self.signals = []
        for signal in (task_enqueued, task_started, task_finished):
            receiver = mock.Mock(side_effect=lambda sender, task_result, **_: self.signals.append(task_result.status))
            signal.connect(receiver, weak=False)
            self.addCleanup(signal.disconnect, receiver)

    def ran(self, result):
        work()
        result.refresh()
        return result

    def test_a_job_runs_and_its_result_is_stored(self):
        result = tasks.confirm.enqueue(self.order.pk, state="sent")
        self.assertEqual((result.status, result.is_finished, result.attempts), (TaskResultStatus.READY, False, 0))
        with self.assertRaisesMessage(ValueError, "not finished"):
            _ = result.return_value
        self.ran(result)
        self.assertEqual(result.return_value, {"order": self.order.pk, "state": "sent"})
        self.assertEqual((result.args, result.kwargs), ([self.order.pk], {"state": "sent"}))
        self.assertEqual((result.status, result.attempts, result.errors), ("SUCCESSFUL", 1, []))
        times = [result.enqueued_at, result.started_at, result.last_attempted_at, result.finished_at]
        self.assertTrue(all(one.tzinfo for one in times))
        self.assertEqual(result, tasks.confirm.get_result(result.id))
        self.assertEqual(Order.objects.get().state, "sent")
        self.assertEqual(self.signals, ["READY", "RUNNING", "SUCCESSFUL"])

    async def test_the_async_calls(self):
        result = await tasks.mail.aenqueue(order_id=self.order.pk)
        await asyncio.to_thread(work)
        await result.arefresh()
        self.assertEqual(result.return_value, [1, 1, result.id])
        self.assertEqual((await tasks.mail.aget_result(result.id)).kwargs, {"order_id": self.order.pk})
        with self.assertRaises(TaskResultDoesNotExist):
            await tasks.mail.aget_result("unknown")

    def test_receivers_of_an_async_task_make_queries_or_are_async(self):
        def receive(task_result, **_):
            Order.objects.create(item=task_result.status)

        async def receive_async(task_result, **_):
            await Order.objects.acreate(item=f"async {task_result.status}")

        for receiver in (receive, receive_async):
            for signal in (task_started, task_finished):
                signal.connect(receiver, weak=False)
                self.addCleanup(signal.disconnect, receiver)
        self.assertEqual(self.ran(tasks.mail.enqueue(self.order.pk)).errors, [])
        wanted = {"lamp", "RUNNING", "SUCCESSFUL", "async RUNNING", "async SUCCESSFUL"}
        self.assertEqual(set(Order.objects.values_list("item", flat=True)), wanted)

    def test_an_error_keeps_its_class_and_its_traceback(self):
        result = self.ran(tasks.refuse.enqueue(1))
        self.assertEqual(result.status, "FAILED")
        [error] = result.errors
        self.assertIs(error.exception_class, tasks.OutOfStock)
        self.assertIn("none left", error.traceback)
        with self.assertRaisesMessage(ValueError, "failed"):
            _ = result.return_value
        self.assertEqual(self.signals, ["READY", "RUNNING", "FAILED"])

    def test_every_attempt_has_an_error_and_a_worker(self):
        result = self.ran(tasks.flaky.enqueue(first=True))
        self.assertEqual((result.attempts, len(result.errors)), (2, 2))
        self.assertEqual({error.exception_class for error in result.errors}, {ValueError})

    def test_a_result_that_is_no_json_fails(self):
        result = self.ran(tasks.unstorable.enqueue())
        self.assertEqual((result.status, result.errors[-1].exception_class), ("FAILED", TypeError))

    def test_an_argument_that_is_no_json_is_refused(self):
        with self.assertRaises(TypeError):
            tasks.confirm.enqueue(object())

    def test_a_task_runs_in_a_process_of_its_own_with_all_its_arguments(self):
        result = self.ran(tasks.pack.enqueue(1, "a", "b", colour="red"))
        self.assertEqual(result.return_value[:3], [1, ["a", "b"], {"colour": "red"}])
        self.assertEqual((result.args, result.kwargs), ([1, "a", "b"], {"colour": "red"}))
        self.assertEqual(get_app().sync.job(result.id).limits[0].key, "1")

    def test_options_of_a_call(self):
        first, second = (tasks.confirm.using(key="order-1").enqueue(self.order.pk) for _ in range(2))
        self.assertEqual(first.id, second.id)

    def test_a_deferred_job_waits(self):
        result = self.ran(tasks.confirm.using(run_after=LATER).enqueue(self.order.pk))
        self.assertEqual((result.status, result.task.run_after), ("READY", LATER))
        self.assertEqual(tasks.confirm.get_result(result.id).task, tasks.confirm.using(run_after=LATER))
        self.assertEqual(get_app().sync.job(result.id).run_at, LATER)

    def test_higher_priorities_run_first(self):
        ids = [tasks.confirm.using(priority=one).enqueue(self.order.pk).id for one in (-5, 7, 0)]
        claimed = get_app().sync.claim(limit=3)
        self.assertEqual([claim.job.id for claim in claimed], [ids[1], ids[2], ids[0]])
        self.assertEqual([tasks.confirm.get_result(id).task.priority for id in ids], [-5, 7, 0])
        for claim in claimed:
            claim.cancel()

    def test_unknown_and_foreign_results_do_not_exist(self):
        backend = tasks.confirm.get_backend()
        foreign = tasks.count.sync.enqueue("lamp")
        for id in ("unknown", "", foreign.id):
            with self.subTest(id), self.assertRaises(TaskResultDoesNotExist):
                backend.get_result(id)

    def test_tasks_of_the_app_run_too(self):
        handles = [tasks.count.sync.enqueue("lamp"), tasks.count_async.sync.enqueue("lamp")]
        work()
        self.assertEqual([handle.result() for handle in handles], [1, 1])

    def test_functions_of_task_modules_run_by_name(self):
        handle = get_app().sync.enqueue(tasks.double, 4)
        foreign = get_app().using(max_attempts=1).sync.enqueue("holdfast.contrib.django.process_app:make")
        work()
        self.assertEqual((handle.result(), foreign.job().history[-1].outcome), (8, "refused"))

    def test_the_app_enqueues_it_too(self):
        handle = get_app().sync.enqueue(tasks.confirm.app_task, self.order.pk)
        self.assertEqual(tasks.confirm.get_result(handle.id).args, [self.order.pk])

    @override_settings(TASKS={"default": {"BACKEND": "holdfast.contrib.django.HoldfastBackend"}})
    def test_other_settings_of_the_backend(self):
        with self.assertRaises(InvalidTask):
            tasks.mail.enqueue(self.order.pk)
        past = datetime(2000, 1, 1, tzinfo=UTC)
        self.assertEqual(self.ran(tasks.confirm.using(run_after=past).enqueue(self.order.pk)).status, "SUCCESSFUL")
