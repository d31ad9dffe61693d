"""What can be awaited can be had without waiting for a loop: the two surfaces, compared."""

import inspect

import pytest

from holdfast import Claim, FlowHandle, Handle, Holdfast, Task
from holdfast.client.bulk import Bulk
from holdfast.client.config import Config
from holdfast.client.errors import ErrorGroups
from holdfast.client.timeseries import Timeseries
from holdfast.flows.service import Flows
from holdfast.schedules.service import Schedules
from holdfast.sync.app import SyncApp
from holdfast.sync.flows import SyncFlowHandle, SyncFlows
from holdfast.sync.services import SyncBulk, SyncConfig, SyncErrors, SyncSchedules, SyncTimeseries, SyncWebhooks
from holdfast.sync.tasks import SyncClaim, SyncHandle, SyncTask
from holdfast.tasks.task import Using
from holdfast.webhooks.service import Webhooks
from website.surface import surface

PAIRS = [
    (Holdfast, SyncApp),
    (Handle, SyncHandle),
    (Claim, SyncClaim),
    (FlowHandle, SyncFlowHandle),
    (Flows, SyncFlows),
    (Schedules, SyncSchedules),
    (Config, SyncConfig),
    (Webhooks, SyncWebhooks),
    (Bulk, SyncBulk),
    (ErrorGroups, SyncErrors),
    (Timeseries, SyncTimeseries),
]


def is_awaited(fn):
    """A coroutine function, or one that returns the coroutine of an enqueue."""
    returns = inspect.signature(fn).return_annotation if inspect.isfunction(fn) else ""
    return inspect.iscoroutinefunction(fn) or str(returns).startswith("Coroutine")


@pytest.mark.parametrize(("kind", "blocking"), [*PAIRS, (Task, SyncTask)])
def test_whatever_can_be_awaited_has_its_blocking_form(kind, blocking):
    awaited = {name for name in surface(kind) if is_awaited(getattr(kind, name))}
    assert awaited, "there is something to compare"
    assert awaited - {"open"} <= surface(blocking), "`with app.sync:` opens"


def test_so_has_each_part_of_the_app():
    parts = {name for name in surface(Holdfast) if isinstance(getattr(Holdfast, name), property)}
    hooks = {"around_enqueue", "around_run", "around_call", "on_error"}
    services = {"audit", "bulk", "config", "errors", "flows", "schedules", "timeseries", "webhooks", "workers"}
    assert parts - hooks == {*services, "sync"}
    assert parts - hooks - {"sync"} <= surface(SyncApp)


@pytest.mark.parametrize("kind", [Task, Using, Handle, FlowHandle])
def test_what_the_app_hands_out_leads_to_its_blocking_form(kind):
    assert isinstance(kind.sync, property)


@pytest.mark.parametrize(("kind", "blocking"), PAIRS)
def test_the_blocking_form_takes_the_same_arguments(kind, blocking):
    for name in sorted(surface(kind) & surface(blocking) - {"task", "recover"}):
        one, other = getattr(kind, name), getattr(blocking, name)
        if inspect.isfunction(one) and inspect.isfunction(other):
            assert list(inspect.signature(one).parameters) == list(inspect.signature(other).parameters), name
